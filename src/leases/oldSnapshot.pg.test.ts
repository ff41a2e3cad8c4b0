import { describe, expect, test } from 'vitest'
import { fresh, leaseBench, nextEvent } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note } from '../../tools/server/testing/workbench.ts'
import { type Lease, LeaseLostError, NestedTransactionError, type Transaction } from '../index.ts'

const bench = await leaseBench()

/** Guards an open transaction with the lease, and writes. */
async function guarded(lease: Lease, tx: Transaction, id: string): Promise<void> {
  await lease.guard(tx)
  await note(tx, id)
}

/** Takes the transaction's snapshot. */
const look = (tx: Transaction): Promise<unknown> => tx.query('SELECT count(*) FROM notes')

const levels = ['repeatable read', 'serializable'] as const

describe.each(DRIVERS)('leases in transactions with an old snapshot, %s', (driver) => {
  test.each(levels)('accepts a lease that is held, whatever the snapshot shows, %s', async (isolation) => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const id = `held ${isolation}`
    await one.transaction({ isolation }, async (tx) => {
      await bench.expire(name)
      await look(tx)
      // As a heartbeat does. The snapshot shows a lease that has expired.
      await bench.admin.query(
        `UPDATE lockstep.leases SET expires_at = clock_timestamp() + interval '30 seconds' WHERE name = $1`,
        [name],
      )
      await guarded(lease, tx, id)
      lease.assertHeld()
      await bench.expire(name)
      expect(await other.leases.tryAcquire(name)).toBeUndefined()
    })
    expect(await bench.notes()).toEqual([id])
    await lease.release()
  })

  test.each(levels)('rejects a lease that another holder has taken since the snapshot, %s', async (isolation) => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 30_000 })
    let next: Lease | undefined
    const error = await failureOf(
      one.transaction({ isolation }, async (tx) => {
        await look(tx)
        if (next === undefined) {
          await bench.expire(name)
          next = await other.leases.acquire(name)
        }
        await guarded(lease, tx, 'late')
      }),
    )
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'taken away' })
    expect(await bench.notes()).toEqual([])
    await next?.release()
    await lease.release()
  })

  test('rejects a lease that was acquired after the snapshot, and keeps it', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    await lockstep.lease(name, {}, async () => Promise.resolve())
    await lockstep.transaction({ isolation: 'repeatable read' }, async (tx) => {
      await look(tx)
      const lease = await lockstep.leases.acquire(name)
      const error = await failureOf(guarded(lease, tx, 'never'))
      expect(error).toBeInstanceOf(NestedTransactionError)
      expect(error).toMatchObject({ keys: [name] })
      lease.assertHeld()
      await lease.release()
    })
  })

  test('guards at repeatable read as at read committed', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 3000 })
    await nextEvent('lease.renewed', name)
    await lease.transaction({ isolation: 'repeatable read' }, (tx) => note(tx, `first ${driver}`))
    await other.leases.forceRelease(name, { by: 'test', reason: 'to see it' })
    const error = await failureOf(lease.transaction({ isolation: 'repeatable read' }, (tx) => note(tx, 'never')))
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(await bench.notes()).toEqual([`first ${driver}`])
    await lease.release()
  })
})
