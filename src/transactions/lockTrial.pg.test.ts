import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { startIneffectiveLocks } from '../../tools/server/ineffectiveLocks.ts'
import { type Proxy, startProxy } from '../testing/index.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { LocksIneffectiveError } from '../errors.ts'
import { key } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import type { LockstepOptions } from '../lockstepOptions.ts'

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => admin.end())

const DRIVERS = ['pg', 'postgres'] as const
type DriverName = (typeof DRIVERS)[number]

interface Place extends LockstepOptions {
  readonly url: string
  readonly max: number
}

/** Lends a Lockstep with a pool of its own. */
async function lend<T>(driver: DriverName, place: Place, work: (lockstep: Lockstep) => Promise<T>): Promise<T> {
  const { url, max, ...options } = place
  const pool =
    driver === 'pg'
      ? new pg.Pool({ connectionString: url, max })
      : postgres(url, { max, prepare: false, onnotice: () => undefined })
  const lockstep = new Lockstep(pool, options)
  try {
    return await work(lockstep)
  } finally {
    await lockstep.close()
    await (pool instanceof pg.Pool ? pool.end() : pool.end({ timeout: 1 }))
  }
}

async function direct(): Promise<Proxy> {
  const { hostname, port } = new URL(database.url)
  return startProxy({ targetHost: hostname, targetPort: Number(port) })
}

const transact = (lockstep: Lockstep): Promise<string> =>
  lockstep.transaction({ lock: key`Trial:${1}` }, async () => 'inside')

interface RememberedTrial {
  readonly route: string
  readonly strategy: string
  readonly pooled: boolean
  readonly connections: number
}

async function trials(): Promise<RememberedTrial[]> {
  const text = 'SELECT route, strategy, pooled, connections FROM lockstep.lock_trials ORDER BY tried_at'
  return (await admin.query<RememberedTrial>(text)).rows
}

/** What the first call of a process sends, when the connections of the one before are gone. */
async function roundTrips(driver: DriverName, proxy: Proxy, place: Place): Promise<number> {
  await expect.poll(() => proxy.connections.length).toBe(0)
  return lend(driver, { ...place, names: false }, async (lockstep) => {
    proxy.roundTrips = 0
    await transact(lockstep)
    return proxy.roundTrips
  })
}

beforeEach(() => admin.query('DELETE FROM lockstep.lock_trials'))

describe.each(DRIVERS)('with %s', (driver) => {
  test('rejects every call on a server that ignores locks', async () => {
    await using stub = await startIneffectiveLocks(database.url)
    await lend(driver, { url: stub.url(database.url), max: 3 }, async (lockstep) => {
      let inside = 0
      for (const isolation of ['read committed', 'repeatable read', 'serializable'] as const) {
        const call = lockstep.transaction({ lock: key`Trial:${1}`, isolation }, async () => void inside++)
        await expect(call).rejects.toMatchObject({
          code: 'LOCKSTEP_LOCKS_INEFFECTIVE',
          reason: 'granted twice',
          message: expect.stringContaining('accepts locks and ignores them') as string,
        })
      }
      await expect(lockstep.leases.acquire(key`Trial:lease`, { ttlMs: 1000 })).rejects.toBeInstanceOf(
        LocksIneffectiveError,
      )
      await expect(lockstep.migrate()).rejects.toBeInstanceOf(LocksIneffectiveError)
      expect(inside).toBe(0)
    })
    expect(await trials()).toEqual([])
  })

  test('rejects every call on a server that never grants a lock', async () => {
    await using stub = await startIneffectiveLocks(database.url, 'refused')
    await lend(driver, { url: stub.url(database.url), max: 3 }, async (lockstep) => {
      await expect(transact(lockstep)).rejects.toMatchObject({ reason: 'never granted' })
    })
  })

  test('finds ineffective locks with a pool of one by the list of locks', async () => {
    await using stub = await startIneffectiveLocks(database.url)
    await lend(driver, { url: stub.url(database.url), max: 1 }, async (lockstep) => {
      await expect(transact(lockstep)).rejects.toMatchObject({ reason: 'not listed' })
    })
  })

  test('tries once per schema, and the next process does not', async () => {
    await using proxy = await direct()
    const place = { url: proxy.url(database.url), max: 2 }
    const count = (where: Place): Promise<number> => roundTrips(driver, proxy, where)
    const [first, second, third] = [
      await count(place),
      await count({ ...place, max: 1 }),
      await count({ ...place, max: 1 }),
    ]
    // A slow answer costs a few more questions; a trial, many more.
    expect(first).toBeGreaterThan(Math.max(second, third) + 10)
    expect(await trials()).toMatchObject([{ pooled: false, connections: 2 }])
  })

  test('records a trial with one connection as such', async () => {
    await using proxy = await direct()
    const place = { url: proxy.url(database.url), max: 1 }
    const count = (where: Place): Promise<number> => roundTrips(driver, proxy, where)
    const [first, second] = [await count(place), await count(place)]
    expect(first).toBeGreaterThan(second + 5)
    expect(await trials()).toMatchObject([{ connections: 1 }])
    // A pool of two has more to try, and does so without keeping its first call waiting.
    await lend(driver, { ...place, max: 2 }, async (lockstep) => {
      proxy.roundTrips = 0
      await transact(lockstep)
      expect(proxy.roundTrips).toBeLessThan(first)
      await expect.poll(trials).toMatchObject([{ connections: 2 }])
    })
  })

  test('asks nothing again after the first call', async () => {
    await using proxy = await direct()
    await lend(driver, { url: proxy.url(database.url), max: 2 }, async (lockstep) => {
      await transact(lockstep)
      // Both connections of the trial are known by their first transaction.
      await Promise.all([transact(lockstep), lockstep.transaction({ lock: key`Trial:${2}` }, async () => undefined)])
      proxy.roundTrips = 0
      await transact(lockstep)
      expect(proxy.roundTrips).toBe(2)
    })
  })

  test('does not disturb processes that start at once', async () => {
    await using proxy = await direct()
    const place = { url: proxy.url(database.url), max: 2 }
    const found = await Promise.all(Array.from({ length: 8 }, () => lend(driver, place, transact)))
    expect(new Set(found)).toEqual(new Set(['inside']))
    expect(await trials()).toHaveLength(1)
  })

  test('tries the strategy "table" separately', async () => {
    await using proxy = await direct()
    await lend(driver, { url: proxy.url(database.url), max: 2, strategy: 'table' }, transact)
    expect(await trials()).toMatchObject([{ strategy: 'table', pooled: false }])
    // Rows exclude where advisory locks do nothing.
    await using stub = await startIneffectiveLocks(database.url)
    expect(await lend(driver, { url: stub.url(database.url), max: 2, strategy: 'table' }, transact)).toBe('inside')
    expect((await admin.query('SELECT FROM lockstep.lock_rows')).rowCount).toBe(1)
  })
})
