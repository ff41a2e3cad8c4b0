import { describe, expect, test } from 'vitest'
import { fresh, leaseBench } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, LeaseLostError, NestedTransactionError } from '../index.ts'

const bench = await leaseBench()

describe.each(DRIVERS)('lease.guard(tx), %s', (driver) => {
  test('keeps the next holder out until the transaction has ended', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    await one.transaction({ lock: 'Ledger:1' }, async (tx) => {
      await note(tx, 'before')
      await lease.guard(tx)
      await bench.expire(name)
      expect(await other.leases.tryAcquire(name)).toBeUndefined()
      await tx.transaction({ lock: 'Ledger:1' }, (part) => note(part, 'guarded'))
    })
    expect(await bench.notes()).toEqual(['before', 'guarded'])
    const next = await other.leases.acquire(name)
    await next.release()
    await lease.release()
  })

  test('rejects a lease that another holder has, and writes nothing', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    await bench.expire(name)
    const next = await other.leases.acquire(name)
    const late = one.transaction({}, async (tx) => {
      await note(tx, 'late')
      await lease.guard(tx)
    })
    const error = await failureOf(late)
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'taken away' })
    expect(await bench.notes()).toEqual([])
    await next.release()
    await lease.release()
  })

  test('names itself in the error of lease.transaction() inside a transaction', async () => {
    const { lockstep, again } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh())
    await lockstep.transaction({}, async () => {
      const error = await failureOf(lease.transaction({}, (tx) => note(tx, 'never')))
      expect(error).toBeInstanceOf(NestedTransactionError)
      expect((error as Error).message).toMatch(/lease\.guard\(tx\).*lockstep\.detached\(fn\)/s)
      await lockstep.detached(() => lease.transaction({}, (tx) => note(tx, 'apart')))
    })
    await again().transaction({}, () => lease.transaction({}, (tx) => note(tx, 'in another Lockstep’s')))
    expect(await bench.notes()).toEqual(['apart', 'in another Lockstep’s'])
    await lease.release()
  })

  test('rejects a transaction of another Lockstep, and keeps the lease', async () => {
    const { lockstep, again } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh())
    await expect(lease.guard({} as never)).rejects.toBeInstanceOf(InvalidOptionError)
    await again().transaction({}, async (tx) => {
      await expect(lease.guard(tx)).rejects.toBeInstanceOf(InvalidOptionError)
    })
    lease.assertHeld()
    await lease.release()
  })

  test('lets a listener of lease.signal open a transaction when it finds the lease lost', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const lease = await lockstep.leases.acquire(name)
    let telling: Promise<void> | undefined
    lease.signal.addEventListener('abort', () => {
      telling = lockstep.transaction({ lock: 'Alarm:1' }, (tx) => note(tx, 'told'))
    })
    await bench.expire(name)
    await lockstep.transaction({}, async (tx) => {
      expect(await failureOf(lease.guard(tx))).toBeInstanceOf(LeaseLostError)
      await telling
    })
    expect(await bench.notes()).toEqual(['told'])
    await lease.release()
  })
})
