import fc from 'fast-check'
import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../lockstep.ts'
import { findHolders } from './holders.ts'
import type { Key } from './key.ts'
import { lockId, RecentLockIds } from './lockId.ts'
import { type LockSet, lockSet, MAX_KEYS } from './lockSet.ts'
import { sessionLock, sessionUnlock, tryLocks, unlockLeftovers, waitForLocks } from './locks.sql.ts'
import { driverFor } from '../postgres/index.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, max: 5 })
afterAll(() => pool.end())

function locksOf(...keys: readonly Key[]): LockSet {
  return lockSet(new RecentLockIds('lockstep'), keys, undefined)
}

async function withClient<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  try {
    return await work(client)
  } finally {
    await client.query('ROLLBACK')
    client.release()
  }
}

describe('lock_id() in SQL equals lockId() in the library', () => {
  async function compare(on: pg.Pool, texts: readonly string[]): Promise<void> {
    const { rows } = await on.query<{ id: string }>(
      `SELECT lockstep.lock_id('lock', text)::text AS id FROM unnest($1::text[]) WITH ORDINALITY AS given (text, n) ORDER BY n`,
      [texts],
    )
    expect(rows.map(({ id }) => id)).toEqual(texts.map((text) => String(lockId('lockstep', 'lock', text))))
  }

  test('for any text of Unicode that PostgreSQL can store', async () => {
    const anyText = fc.string({ unit: 'binary', maxLength: 40 }).map((text) => text.replaceAll('\0', ''))
    const nasty = fc.constantFrom(
      '',
      "'",
      '"',
      '\\',
      '\\x00',
      "E'\\000'",
      '\u0301e\u0301',
      'é',
      'e\u0301',
      '👩‍👩‍👧‍👦',
      '𝒳',
      '\ufeff',
      '\u202e',
      '\uffff',
      '\u{10ffff}',
      'ﬀ',
      '\r\n\t',
      '$1',
      'NULL',
      '{a,b}',
    )
    const key = fc.tuple(fc.oneof(anyText, nasty), fc.oneof(anyText, nasty)).map(([a, b]) => `${a}:${b}`)
    await fc.assert(
      fc.asyncProperty(fc.array(key, { minLength: 250, maxLength: 300 }), (texts) => compare(pool, texts)),
      { numRuns: 10 },
    )
  })

  test.each(['lock', 'migrate', 'incarnation'] as const)('for the domain %s', async (domain) => {
    const { rows } = await pool.query<{ id: string }>(`SELECT lockstep.lock_id($1, 'A:b')::text AS id`, [domain])
    expect(rows[0]?.id).toBe(String(lockId('lockstep', domain, 'A:b')))
  })

  test.each([
    ['LATIN1', fc.string({ unit: fc.integer({ min: 1, max: 255 }).map((code) => String.fromCharCode(code)) })],
    // Any bytes: it stores the client's UTF-8 as it comes.
    ['SQL_ASCII', fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\0', ''))],
  ])('in a database with the encoding %s', async (encoding, text) => {
    const name = `${database.name}_${encoding.toLowerCase()}`
    await pool.query(`CREATE DATABASE ${name} ENCODING '${encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
    const other = new pg.Pool({ connectionString: database.url.replace(database.name, name), max: 1 })
    try {
      await new Lockstep(other).migrate()
      await fc.assert(
        fc.asyncProperty(fc.array(text, { minLength: 250, maxLength: 300 }), (texts) => compare(other, texts)),
        { numRuns: 2 },
      )
      expect(await new Lockstep(other).transaction({ lock: 'Zahlung:ü' }, async () => 'works')).toBe('works')
    } finally {
      await other.end()
      await pool.query(`DROP DATABASE ${name} WITH (FORCE)`)
    }
  })

  test('for keys that collide in hashtext()', async () => {
    const { rows } = await pool.query<{ keys: string[] }>(`
      SELECT array_agg('Account:' || n) AS keys FROM generate_series(1, 200000) n
       GROUP BY hashtext('Account:' || n) HAVING count(*) > 1`)
    // 32 bits: 200,000 keys have about 4.7 collisions. The hash is the same on every platform of one byte order.
    expect(rows.length).toBeGreaterThan(0)
    for (const { keys } of rows)
      expect(new Set(keys.map((key) => lockId('lockstep', 'lock', key))).size).toBe(keys.length)
  })
})

describe('many keys in one message', () => {
  const many = locksOf(...Array.from({ length: MAX_KEYS }, (_, n): Key => `Account:${n}`))

  test('tries as many as are allowed in one nested expression', async () => {
    await withClient(async (client) => {
      await client.query('BEGIN')
      const { rows } = await client.query<{ held: string }>(`SELECT ${tryLocks(many, `'all'`)} AS held`)
      expect(rows).toEqual([{ held: 'all' }])
      const held = await client.query(`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`)
      expect(held.rowCount).toBe(MAX_KEYS)
    })
  })

  test('stops at the first taken key, and holds no later one', async () => {
    await withClient(async (holder) => {
      const taken = many[100]
      await holder.query('BEGIN')
      await holder.query('SELECT pg_advisory_xact_lock($1)', [String(taken?.id)])
      await withClient(async (client) => {
        await client.query('BEGIN')
        const { rows } = await client.query<{ held: string | null }>(`SELECT ${tryLocks(many, `'all'`)} AS held`)
        expect(rows).toEqual([{ held: null }])
        const held = await client.query<{ id: string }>(`
          SELECT ((classid::bigint << 32) | objid::bigint)::text AS id FROM pg_locks
           WHERE locktype = 'advisory' AND pid = pg_backend_pid()`)
        const ids = new Set(many.slice(0, 100).map(({ id }) => String(id)))
        expect(new Set(held.rows.map(({ id }) => id))).toEqual(ids)
      })
    })
  })

  test('waits for and releases as many as are allowed', async () => {
    await withClient(async (client) => {
      await client.query(`BEGIN; ${waitForLocks(many, 1000, true)}`)
      await client.query(`SELECT ${many.map((lock) => sessionLock(lock)).join(', ')}`)
      await client.query('COMMIT')
      const held = `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`
      expect((await client.query(held)).rowCount).toBe(MAX_KEYS)
      await client.query(
        `SELECT ${many
          .slice(1)
          .map((lock) => sessionUnlock(lock))
          .join(', ')}`,
      )
      await client.query(unlockLeftovers(many))
      expect((await client.query(held)).rowCount).toBe(0)
    })
  })
})

test.each([true, false])('bounds the wait for several keys as a whole', async (reportsWaiting) => {
  const locks = locksOf('Slow:1', 'Slow:2', 'Slow:3')
  // Much longer than the test takes.
  const waitMs = 3_600_000
  await withClient(async (watcher) => {
    const holders = await Promise.all(locks.map(() => pool.connect()))
    try {
      for (const [n, lock] of locks.entries()) {
        await holders[n]?.query('BEGIN')
        await holders[n]?.query('SELECT pg_advisory_xact_lock($1)', [String(lock.id)])
      }
      await withWaiter(async (waiter) => {
        const waiterPid = (waiter as unknown as { processID: number }).processID
        const waiting = waiter.query(`BEGIN; ${waitForLocks(locks, waitMs, reportsWaiting)}`)
        const spent: number[] = []
        for (const [n, lock] of locks.entries()) {
          await expect.poll(() => waitsFor(watcher, waiterPid, lock.id)).toBe(true)
          // As the server measures it, from the time at which the message arrived.
          const { rows } = await watcher.query<{ ms: number }>(
            `SELECT floor(extract(epoch FROM clock_timestamp() - query_start) * 1000)::int AS ms, pg_sleep(0.2)
               FROM pg_stat_activity WHERE pid = $1`,
            [waiterPid],
          )
          spent.push(rows[0]?.ms ?? 0)
          await holders[n]?.query('ROLLBACK')
        }
        const limits = ((await waiting) as unknown as pg.QueryResult<{ set_config?: string }>[]).flatMap(({ rows }) =>
          rows.flatMap(({ set_config: limit }) => (limit === undefined ? [] : [inMs(limit)])),
        )
        // Each of the others may wait for what the ones before have left: they had 200 ms each, at least.
        expect(limits).toHaveLength(2)
        for (const [n, limit] of limits.entries()) {
          expect(limit).toBeLessThanOrEqual(waitMs - ((spent[n] ?? 0) + 200))
          expect(limit).toBeGreaterThanOrEqual(waitMs - (spent[n + 1] ?? 0))
        }
        await waiter.query('ROLLBACK')
        await holders[2]?.query(`BEGIN; SELECT pg_advisory_xact_lock(${locks[2]?.id})`)
        const refused = failureOf(waiter.query(`BEGIN; ${waitForLocks(locks, 1, reportsWaiting)}`))
        expect(await refused).toMatchObject({ code: '55P03' })
      })
    } finally {
      for (const holder of holders) {
        await holder.query('ROLLBACK')
        holder.release()
      }
    }
  })

  /** As PostgreSQL writes a duration, such as 3599s or 3599812ms. */
  function inMs(limit: string): number {
    return Number(/^\d+/.exec(limit)?.[0]) * (limit.endsWith('ms') ? 1 : limit.endsWith('min') ? 60_000 : 1000)
  }

  async function withWaiter(work: (client: pg.Client) => Promise<void>): Promise<void> {
    const client = new pg.Client(database.url)
    await client.connect()
    try {
      await work(client)
    } finally {
      await client.end()
    }
  }

  async function waitsFor(watcher: pg.PoolClient, pid: number, id: bigint): Promise<boolean> {
    const { rowCount } = await watcher.query(
      `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1
          AND ((classid::bigint << 32) | objid::bigint) = $2`,
      [pid, String(id)],
    )
    return rowCount === 1
  }
})

test('names holders by their keys, whatever the sign of the id', async () => {
  const keys = Array.from({ length: 9 }, (_, n): Key => `Holding:${n}`)
  const locks = locksOf(...keys)
  expect(new Set(locks.map(({ id }) => id < 0n)).size).toBe(2)
  const holder = new pg.Client({ connectionString: database.url, application_name: 'the holder' })
  await holder.connect()
  try {
    await holder.query('BEGIN')
    for (const { id } of locks) await holder.query('SELECT pg_advisory_xact_lock($1)', [String(id)])
    const connection = await driverFor(pool).connect()
    const found = await findHolders(connection, [...locks, ...locksOf('Holding:nobody')])
    connection.release()
    expect(found.map(({ key }) => key).toSorted()).toEqual(keys)
    for (const each of found) {
      expect(each).toMatchObject({
        where: 'server',
        application: 'the holder',
        pid: (holder as unknown as { processID: number }).processID,
      })
      expect(each.openForMs).toBeGreaterThanOrEqual(0)
    }
    await holder.query('ROLLBACK')
  } finally {
    await holder.end()
  }
})
