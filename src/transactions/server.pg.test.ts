import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'
import { type Key, key } from '../locks/index.ts'
import { hold } from '../testing/index.ts'

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url })
const pools: pg.Pool[] = [admin]
afterAll(() => Promise.all(pools.map((pool) => pool.end())))

function lockstep(options: pg.PoolConfig = {}): Lockstep {
  const pool = new pg.Pool({ connectionString: database.url, ...options })
  pools.push(pool)
  return new Lockstep(pool)
}

beforeAll(() => admin.query('CREATE TABLE item (id int PRIMARY KEY, value int)'))

async function advisoryWaiters(): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM pg_locks l JOIN pg_database d ON d.oid = l.database
      WHERE locktype = 'advisory' AND NOT granted AND datname = $1`,
    [database.name],
  )
  return rows[0]?.n ?? 0
}

test('runs at READ COMMITTED whatever the default of the server', async () => {
  const strict = lockstep({ options: '-c default_transaction_isolation=repeatable\\ read' })
  const { release: letGo } = await hold(lockstep(), key`Item:${1}`)
  const waiting = strict.transaction({ lock: key`Item:${1}` }, async (tx) => {
    const { rows } = await tx.query(
      `SELECT count(*)::int AS n, current_setting('transaction_isolation') AS level FROM item`,
    )
    return rows[0]
  })
  await expect.poll(advisoryWaiters).toBe(1)
  await admin.query('INSERT INTO item VALUES (1, 1)')
  await letGo()
  expect(await waiting).toEqual({ n: 1, level: 'read committed' })
})

test('does not block CREATE INDEX CONCURRENTLY for longer than a slice', async () => {
  const { release: letGo } = await hold(lockstep(), key`Item:${2}`)
  const waiting = lockstep().transaction({ lock: key`Item:${2}` }, () => Promise.resolve('granted'))
  await expect.poll(advisoryWaiters).toBe(1)
  // The holder's own transaction has no snapshot while it is idle: only the waiter could be in the way.
  await admin.query('CREATE INDEX CONCURRENTLY item_value ON item (value)')
  await letGo()
  expect(await waiting).toBe('granted')
})

test('holds a lock, waits and times out with a pool of one', async () => {
  const single = lockstep({ max: 1 })
  await single.transaction({ lock: key`Item:${3}` }, (tx) => tx.query('SELECT 1'))
  const { release: letGo } = await hold(lockstep(), key`Item:${3}`)
  await expect(
    single.transaction({ lock: key`Item:${3}`, waitMs: 100 }, () => Promise.resolve()),
  ).rejects.toMatchObject({
    code: 'LOCKSTEP_LOCK_TIMEOUT',
  })
  const waiting = single.transaction({ lock: key`Item:${3}` }, () => Promise.resolve('granted'))
  await letGo()
  expect(await waiting).toBe('granted')
  const strict = single.transaction({ lock: key`Item:${3}`, isolation: 'serializable' }, () =>
    Promise.resolve('granted'),
  )
  expect(await strict).toBe('granted')
})

test('shares one waitMs among several contended keys', async () => {
  const keys = [key`Item:${4}`, key`Item:${5}`, key`Item:${6}`]
  const caller = lockstep()
  const ends = await Promise.all(keys.map((each) => hold(lockstep(), each)))
  const waitMs = 5000
  const startedAt = performance.now()
  const timedOutAfter = async (waiter: Lockstep, lock: Key | readonly Key[]): Promise<number> => {
    const waiting = waiter.transaction({ lock, waitMs }, () => Promise.resolve())
    expect(await failureOf(waiting)).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT' })
    return performance.now() - startedAt
  }
  // One after the other becomes free in the order in which they are taken. The last one never does, and another caller waits for it alone.
  const inOrder = keys
    .map((each, index) => ({ key: each, id: caller.lockId(each), end: ends[index]?.release }))
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
  const several = timedOutAfter(caller, keys)
  const one = timedOutAfter(lockstep(), inOrder[2]?.key ?? [])
  await expect.poll(advisoryWaiters).toBe(2)
  await inOrder[0]?.end?.()
  await sleep(0.8 * waitMs - (performance.now() - startedAt))
  await inOrder[1]?.end?.()
  // With a waitMs of its own, the last lock would have begun its wait after four fifths of the time.
  expect(await several).toBeLessThan((await one) + 0.6 * waitMs)
  await inOrder[2]?.end?.()
})

test('excludes plain SQL that locks lock_id()', async () => {
  const library = lockstep()
  const client = await admin.connect()
  try {
    await client.query('BEGIN')
    await client.query(`SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', 'Item:7'))`)
    await expect(
      library.transaction({ lock: key`Item:${7}`, waitMs: 0 }, () => Promise.resolve()),
    ).rejects.toMatchObject({
      code: 'LOCKSTEP_LOCK_TIMEOUT',
      holders: [{ where: 'server', key: 'Item:7' }],
    })
  } finally {
    await client.query('ROLLBACK')
    client.release()
  }
})
