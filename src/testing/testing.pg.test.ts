import pg from 'pg'
import * as vitest from 'vitest'
import { describe, expect, inject, test } from 'vitest'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import { DrainTimeoutError, type Key, key, type Leak, LeakError, LeaseHeldError, LeaseLostError } from '../index.ts'
import { createTemplate, createTestDatabase, type TestDatabase, testDatabase } from './index.ts'

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
    names.push(db.name)
  })

  test('is dropped after the test', async () => {
    expect(names).toHaveLength(2)
    for (const name of names) expect(await exists(name)).toBe(false)
    expect(await exists(db.name)).toBe(true)
  })

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
    await db.lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'orders', key: 'a', payload: 1 }))
    const sink = (): [{ unknown: string }] => [{ unknown: 'no answer' }]
    await expect(db.drain({ sink, timeoutMs: 50 })).rejects.toThrow(DrainTimeoutError)
    expect(await db.drain()).toHaveLength(1)
  })
})

describe('time that passes for leases', () => {
  const db = testDatabase(vitest, { ...options, per: 'file' })
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
    const lease = await db.lockstep.leases.acquire(fresh(), { ttlMs: 600_000, maxHoldMs: 60_000 })
    await db.advanceLeases(59_000)
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

describe('a leak that was planted', () => {
  /** What `drop()` finds after the function; the database goes all the same. */
  async function leaksOf(plant: (db: TestDatabase<pg.Pool>) => Promise<unknown>): Promise<readonly Leak[]> {
    const db = await createTestDatabase({ ...options, leakGraceMs: 100 })
    const { name } = db
    const clean = await plant(db)
    const error = await failureOf(db.drop())
    expect(error).toBeInstanceOf(LeakError)
    if (typeof clean === 'function') await (clean as () => Promise<unknown>)()
    expect(await exists(name)).toBe(false)
    return (error as LeakError).leaks
  }

  test('is found: a lock, by its key, and the transaction that holds it', async () => {
    const leaks = await leaksOf(async (db) => {
      const { lockstep } = db.open()
      let end = (): void => undefined
      const ended = new Promise<void>((resolve) => (end = resolve))
      await new Promise<void>((isHeld) => {
        void lockstep
          .transaction({ lock: key`Forgotten:1` }, async () => {
            isHeld()
            await ended
          })
          .catch(() => undefined)
      })
      // The transaction would keep the Lockstep from closing.
      setTimeout(end, 1000)
      await expect.poll(async () => (await db.leaks()).some(({ detail }) => detail.includes('Forgotten:1'))).toBe(true)
    })
    expect(leaks.map(({ kind }) => kind)).toEqual(['lock', 'transaction'])
    expect(leaks[0]?.detail).toMatch(/^Forgotten:1 is held by session \d+ \(ExclusiveLock\)/)
  })

  test('is found: a lease', async () => {
    const leaks = await leaksOf((db) =>
      db.lockstep.leases.acquire(key`Instance:1`, { holder: 'me' }).then(() => undefined),
    )
    expect(leaks).toEqual([{ kind: 'lease', detail: expect.stringMatching(/^Instance:1 is held by me, fence \d+$/) }])
  })

  test('is found: a session in a transaction, and a connection', async () => {
    const leaks = await leaksOf(async (db) => {
      const client = new pg.Client({ connectionString: db.url, application_name: 'forgetful' })
      client.on('error', () => undefined)
      await client.connect()
      await client.query('BEGIN')
    })
    expect(leaks).toEqual([
      { kind: 'transaction', detail: expect.stringMatching(/^session \d+ of forgetful is idle in transaction/) },
    ])
    const connections = await leaksOf(async (db) => {
      const client = new pg.Client({ connectionString: db.url, application_name: 'forgetful' })
      client.on('error', () => undefined)
      await client.connect()
    })
    expect(connections).toMatchObject([{ kind: 'connection' }])
  })

  test('is found: a fault that never struck', async () => {
    const leaks = await leaksOf(async (db) => {
      db.conflictOnce()
      db.killAt({ before: 'DELETE' })
    })
    expect(leaks).toEqual([
      { kind: 'fault', detail: 'conflictOnce() has not struck' },
      { kind: 'fault', detail: 'killAt({"before":"DELETE"}) has not struck' },
    ])
  })

  test('is not looked for where the test says so', async () => {
    const db = await createTestDatabase({ ...options, leaks: ['lock'] })
    db.loseCommit()
    await db.lockstep.leases.acquire(key`Instance:1`)
    await db.drop()
    expect(await db.drop()).toBeUndefined()
    expect(() => db.url).toThrow('There is no test database now.')
  })
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
