import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Lease, LeaseLostError, NestedTransactionError, type Transaction } from '../index.ts'

const bench = await testBench()

const TTL_MS = 600
let names = 0
const fresh = () => key`OldSnapshot:${++names}`

/** Guards an open transaction with the lease, and writes. */
async function guarded(lease: Lease, tx: Transaction, id: string): Promise<void> {
  await lease.guard(tx)
  await note(tx, id)
}

/** Takes the transaction's snapshot. */
const look = (tx: Transaction): Promise<unknown> => tx.query('SELECT count(*) FROM notes')

const levels = ['repeatable read', 'serializable'] as const

describe.each(DRIVERS)('leases in transactions with an old snapshot, %s', (driver) => {
  test.each(levels)('a lease that is held is not declared lost, %s', async (isolation) => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: TTL_MS })
    const id = `held ${isolation}`
    await one.transaction({ isolation }, async (tx) => {
      await look(tx)
      // Heartbeats go on; what the snapshot shows of the lease expires.
      await sleep(1.5 * TTL_MS)
      await guarded(lease, tx, id)
      lease.assertHeld()
      await bench.admin.query('UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name = $1', [name])
      expect(await other.leases.tryAcquire(name)).toBeUndefined()
    })
    expect(await bench.notes()).toEqual([id])
    await lease.release()
  })

  test.each(levels)(
    'a lease that another has taken since the snapshot is lost, and nothing is written, %s',
    async (isolation) => {
      const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
      const name = fresh()
      const lease = await one.leases.acquire(name, { ttlMs: 30_000 })
      let next: Lease | undefined
      const error = await failureOf(
        one.transaction({ isolation }, async (tx) => {
          await look(tx)
          if (next === undefined) {
            await bench.admin.query('UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name = $1', [name])
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
    },
  )

  test('a lease that was acquired after the snapshot is refused there, and stays held', async () => {
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

  test('lease.transaction() at repeatable read guards as at read committed', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: TTL_MS })
    await sleep(TTL_MS)
    await lease.transaction({ isolation: 'repeatable read' }, (tx) => note(tx, `first ${driver}`))
    await other.leases.forceRelease(name, { by: 'test', reason: 'to see it' })
    const error = await failureOf(lease.transaction({ isolation: 'repeatable read' }, (tx) => note(tx, 'never')))
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(await bench.notes()).toEqual([`first ${driver}`])
    await lease.release()
  })
})
