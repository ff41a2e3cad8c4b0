import pg from 'pg'
import * as vitest from 'vitest'
import { describe, expect, inject, test } from 'vitest'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import {
  DrainTimeoutError,
  InvalidOptionError,
  type Key,
  key,
  type Leak,
  LeakError,
  LeaseHeldError,
  LeaseLostError,
} from '../index.ts'
import { createTemplate, createTestDatabase, findLeaks, hold, testDatabase } from './index.ts'

const options = {
  url: inject('adminUrl'),
  template: inject('templateDatabase'),
  pool: (url: string) => new pg.Pool({ connectionString: url }),
}
const server = new pg.Pool({ connectionString: options.url, max: 1 })
vitest.afterAll(() => server.end())
const exists = async (name: string): Promise<boolean> =>
  (await server.query('SELECT FROM pg_database WHERE datname = $1', [name])).rowCount === 1

describe('a database for each test', () => {
  const db = testDatabase(vitest, options)
  const names: string[] = []

  test.each([1, 2])('is its own, time %i', async () => {
    await db.pool.query('CREATE TABLE own (id int)')
    const { rows } = await db.pool.query<{ name: string }>('SELECT current_database() AS name')
    expect(rows).toEqual([{ name: db.name }])
    expect(names).not.toContain(db.name)
    // Dropped after the test.
    for (const name of names) expect(await exists(name)).toBe(false)
    expect(await exists(db.name)).toBe(true)
    names.push(db.name)
  })
})

describe('a database for a file', () => {
  const db = testDatabase(vitest, { ...options, per: 'file' })

  test('has a lock held until it is released', async () => {
    const done: string[] = []
    const held = await db.hold([key`Order:1`, key`Order:2`])
    const others = [db.lockstep, db.open().lockstep].map((lockstep, place) =>
      lockstep.transaction({ lock: [key`Order:${place + 1}`, key`Other:1`] }, async () => void done.push(`${place}`)),
    )
    await held.waiters(2)
    expect(done).toEqual([])
    await held.release()
    await Promise.all(others)
    expect(done.toSorted()).toEqual(['0', '1'])
    await held.release()
  })

  test('drains the outbox in the order of commits, and the next time what is new', async () => {
    const { lockstep } = db
    const enqueue = (of: string, ...numbers: number[]): Promise<unknown> =>
      lockstep.transaction({}, async (tx) => {
        for (const payload of numbers) await tx.enqueue({ topic: 'orders', key: of, payload })
      })
    await enqueue('a', 1, 2)
    await enqueue('b', 3)
    await enqueue('a', 4)
    expect((await db.drain()).map(({ key: of, seq, payload }) => [of, seq, payload])).toEqual([
      ['a', 1, 1],
      ['a', 2, 2],
      ['b', 1, 3],
      ['a', 3, 4],
    ])
    expect(await db.drain()).toEqual([])
    await enqueue('b', 5)
    const refusing = await db.drain({ sink: (events) => events.map(() => ({ refused: 'not today' })) })
    expect(refusing).toEqual([])
    expect((await lockstep.outbox.parked()).map(({ key: of, reason }) => [of, reason])).toEqual([['b', 'not today']])
    await enqueue('c', 6)
    await expect(db.drain({ sink: () => Promise.reject(new Error('broken')) })).rejects.toThrow('broken')
    expect((await db.drain()).map(({ payload }) => payload)).toContain(6)
  })

  test('ends a drain whose sink does not take the events', async () => {
    await db.lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'orders', key: 'lasting', payload: 1 }))
    const sink = (): [{ unknown: string }] => [{ unknown: 'no answer' }]
    await expect(db.drain({ sink, timeoutMs: 50 })).rejects.toThrow(DrainTimeoutError)
    // A stream that another test left parked may be tried again meanwhile.
    expect((await db.drain()).filter(({ key: of }) => of === 'lasting')).toHaveLength(1)
  })

  describe('and time that passes for its leases', () => {
    let last = 0
    const fresh = (): Key => key`Lease:${++last}`

    test('ends a lease whose time is over, and its holder knows at once', async () => {
      const name = fresh()
      const lease = await db.lockstep.leases.acquire(name, { ttlMs: 60_000 })
      const other = db.open().lockstep
      await expect(other.leases.acquire(name)).rejects.toThrow(LeaseHeldError)
      await db.advanceLeases(60_000)
      expect(lease.signal.aborted).toBe(true)
      expect(lease.signal.reason).toMatchObject({ reason: 'not renewed in time' })
      expect(await failureOf(lease.transaction({}, async () => undefined))).toBeInstanceOf(LeaseLostError)
      const next = await other.leases.acquire(name)
      expect(next.fence).toBeGreaterThan(lease.fence)
      await next.release()
    })

    test('leaves a lease with its holder whose time is not over, and hands it on when it is', async () => {
      const name = fresh()
      const lease = await db.lockstep.leases.acquire(name, { ttlMs: 60_000 })
      await db.advanceLeases(30_000)
      expect(lease.signal.aborted).toBe(false)
      expect(lease.trustedMs).toBeLessThanOrEqual(54_000)
      // The heartbeat was due.
      await expect.poll(() => lease.trustedMs).toBeGreaterThan(30_000)
      const waiting = db.open().lockstep.leases.acquire(name, { ttlMs: 60_000, waitMs: false })
      await expect.poll(async () => (await db.lockstep.leases.inspect(name)).waiters.length).toBe(1)
      await db.advanceLeases(60_000)
      const next = await waiting
      expect(next.fence).toBeGreaterThan(lease.fence)
      await next.release()
    })

    test('ends a lease that is held longer than maxHoldMs', async () => {
      const lease = await db.lockstep.leases.acquire(fresh(), { ttlMs: 60_000, maxHoldMs: 30_000 })
      await db.advanceLeases(29_000)
      expect(lease.signal.aborted).toBe(false)
      await db.advanceLeases(2000)
      await expect.poll(() => lease.signal.aborted).toBe(true)
      expect(lease.signal.reason).toMatchObject({ reason: 'held too long' })
      await lease.release()
    })

    test('moves only forward', async () => {
      await expect(db.advanceLeases(-1)).rejects.toThrow('advanceLeases() was given -1.')
    })
  })
})

describe('a leak that was planted', () => {
  /** The hooks of a runner that calls them on request. */
  const hooks = { beforeAll: [], afterAll: [], beforeEach: [], afterEach: [] } as Record<
    string,
    (() => Promise<void>)[]
  >
  const register = (name: string) => (hook: () => Promise<void>) => hooks[name]?.push(hook)
  const run = async (name: string): Promise<void> => {
    for (const hook of hooks[name] ?? []) await hook()
  }
  const runner = {
    beforeAll: register('beforeAll'),
    afterAll: register('afterAll'),
    beforeEach: register('beforeEach'),
    afterEach: register('afterEach'),
  }
  const db = testDatabase(runner, { ...options, per: 'file', leakGraceMs: 100 })
  vitest.beforeAll(() => run('beforeAll'))

  /** What the end of the test finds after the function; what that returns cleans up. */
  async function leaksOf(plant: () => Promise<() => unknown>, end = 'afterEach'): Promise<readonly Leak[]> {
    await run('beforeEach')
    const cleanUp = await plant()
    const error = await failureOf(run(end))
    expect(error).toBeInstanceOf(LeakError)
    await cleanUp()
    return (error as LeakError).leaks
  }

  test('is found: a lock, by its key, and the transaction that holds it', async () => {
    const leaks = await leaksOf(async () => {
      const { release } = await hold(db.lockstep, key`Forgotten:1`)
      await expect.poll(async () => (await db.leaks()).map(({ detail }) => detail).join()).toContain('Forgotten:1')
      return release
    })
    expect(leaks.map(({ kind }) => kind)).toEqual(['lock', 'transaction'])
    expect(leaks[0]?.detail).toMatch(/^Forgotten:1 is held by session \d+ \(ExclusiveLock\)/)
  })

  test('is found: a lease', async () => {
    const leaks = await leaksOf(async () => {
      const lease = await db.lockstep.leases.acquire(key`Instance:1`, { holder: 'me' })
      return () => lease.release()
    })
    expect(leaks).toEqual([{ kind: 'lease', detail: expect.stringMatching(/^Instance:1 is held by me, fence \d+$/) }])
  })

  test('is found: a session in a transaction', async () => {
    const leaks = await leaksOf(async () => {
      const client = new pg.Client({ connectionString: db.url, application_name: 'forgetful' })
      await client.connect()
      await client.query('BEGIN')
      return () => client.end()
    })
    expect(leaks).toEqual([
      { kind: 'transaction', detail: expect.stringMatching(/^session \d+ of forgetful is idle in transaction/) },
    ])
  })

  test('is found: a fault that never struck', async () => {
    const leaks = await leaksOf(async () => {
      db.conflictOnce()
      db.killAt({ before: 'DELETE' })
      return () => undefined
    })
    expect(leaks).toEqual([
      { kind: 'fault', detail: 'conflictOnce() has not struck' },
      { kind: 'fault', detail: 'killAt({"before":"DELETE"}) has not struck' },
    ])
  })

  test('is found: a connection, and the database goes all the same', async () => {
    const { name } = db
    const leaks = await leaksOf(async () => {
      const client = new pg.Client({ connectionString: db.url, application_name: 'forgetful' })
      client.on('error', () => undefined)
      await client.connect()
      return () => undefined
    }, 'afterAll')
    expect(leaks).toMatchObject([{ kind: 'connection', detail: expect.stringContaining('forgetful is idle') }])
    expect(await exists(name)).toBe(false)
    expect(() => db.url).toThrow('There is no test database now.')
  })

  test('is found: a transaction that never ends, which does not keep the database', async () => {
    const own = await createTestDatabase({ ...options, leakGraceMs: 100 })
    const { name } = own
    const begun = new Promise<void>((isBegun) => {
      const forever = (): Promise<never> => (isBegun(), new Promise<never>(() => undefined))
      void own.lockstep.transaction({}, forever).catch(() => undefined)
    })
    await begun
    const error = await failureOf(own.drop())
    expect((error as LeakError).leaks).toMatchObject([{ kind: 'transaction' }])
    expect(await exists(name)).toBe(false)
  })

  test('is not looked for where the test says so', async () => {
    await using lenient = await createTestDatabase({ ...options, leaks: ['lock'] })
    lenient.loseCommit()
    await lenient.lockstep.leases.acquire(key`Instance:1`)
  })
})

test('rejects a kind of leak and a value of `per` that are unknown', async () => {
  for (const wrong of [{ leaks: ['locks'] }, { per: 'suite' }]) {
    expect(() => testDatabase(vitest, { ...options, ...wrong } as never)).toThrow(InvalidOptionError)
    await expect(createTestDatabase({ ...options, ...wrong } as never)).rejects.toThrow(InvalidOptionError)
  }
  await expect(findLeaks(server, { kinds: ['leases' as never] })).rejects.toThrow(InvalidOptionError)
})

test('a template has the schema and what prepare() adds, and goes when it is dropped', async () => {
  const { pool, url } = options
  const template = await createTemplate({ pool, url, prepare: (given) => given.query('CREATE TABLE orders (id int)') })
  const db = await createTestDatabase({ pool, url, template: template.name })
  expect((await db.pool.query('SELECT * FROM orders')).rows).toEqual([])
  expect(await db.lockstep.transaction({ lock: key`Order:1` }, async () => 'locked')).toBe('locked')
  await db.drop()
  await template.drop()
  expect(await exists(template.name)).toBe(false)
})
