import { describe, expect, test } from 'vitest'
import { DRIVERS, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Lockstep } from '../index.ts'

const bench = await testBench()
const url = bench.pooledUrl

describe.each(DRIVERS)('many waiters, %s', (driver) => {
  test('serves 200 waiters in order of arrival with a pool of 5, which stays free meanwhile', async () => {
    const owner = bench.open(driver).lockstep
    const crowd = bench.open(driver, { max: 5 })
    const name = key`Crowd:${driver}`
    const lease = await owner.leases.acquire(name)
    const served: number[] = []
    const calls = Array.from({ length: 200 }, (_, number) =>
      crowd.lockstep.lease(name, { waitMs: 60_000, ttlMs: 5000 }, async () => Promise.resolve(served.push(number))),
    )
    await expect.poll(async () => (await owner.leases.inspect(name)).waiters.length).toBe(200)
    // All five could be had at once but the one that listens.
    const free = await Promise.all(Array.from({ length: 4 }, () => crowd.query('SELECT pg_backend_pid() AS pid')))
    expect(free).toHaveLength(4)
    await lease.release()
    await Promise.all(calls)
    expect(served).toEqual(Array.from({ length: 200 }, (_, number) => number))
  })

  test.skipIf(url === undefined)('moves the queue by polling behind a pooler in transaction mode', async () => {
    const [one, other] = [1, 2].map(() => bench.open(driver, { url: url ?? '' }).lockstep) as [Lockstep, Lockstep]
    const name = key`Pooled:${driver}`
    const lease = await one.leases.acquire(name, { ttlMs: 2000 })
    const served: number[] = []
    const calls = Array.from({ length: 8 }, (_, number) =>
      other.lease(name, { waitMs: 20_000, ttlMs: 2000 }, async (held) => {
        served.push(number)
        await held.transaction({}, async (tx) => tx.query('SELECT 1'))
      }),
    )
    await expect.poll(async () => (await one.leases.inspect(name)).waiters.length).toBe(8)
    await lease.release()
    await Promise.all(calls)
    expect(served).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    const { rows } = await bench.admin.query(
      `SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database() AND state = 'idle'`,
    )
    expect(rows.length).toBeLessThanOrEqual(1)
  })
})
