import pg from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'
import { key } from '../locks/index.ts'
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
  await caller.transaction({}, (tx) => tx.query('SELECT 1'))
  const ends = await Promise.all(keys.map((each) => hold(lockstep(), each)))
  const inOrder = keys
    .map((each, index) => ({ id: caller.lockId(each), end: ends[index]?.release }))
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
  const waitsFor = async (id: bigint): Promise<boolean> => {
    const { rowCount } = await admin.query(
      `SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE locktype = 'advisory' AND NOT granted AND datname = $1 AND ((classid::bigint << 32) | objid::bigint) = $2`,
      [database.name, String(id)],
    )
    return rowCount === 1
  }
  // Much longer than the test takes: only the clock that it moves uses it up.
  const waitMs = 3_600_000
  const now = performance.now.bind(performance)
  let passedMs = 0
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + passedMs)
  try {
    const waiting = failureOf(caller.transaction({ lock: keys, waitMs }, () => Promise.resolve()))
    // While it waits for each of the three, two fifths of the time go by. With a waitMs of its own, none of the three waits would end.
    for (const { id, end } of inOrder) {
      await expect.poll(() => waitsFor(id)).toBe(true)
      passedMs += 0.4 * waitMs
      if (passedMs < waitMs) await end?.()
    }
    expect(await waiting).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'server' })
  } finally {
    clock.mockRestore()
    for (const { end } of inOrder) await end?.()
  }
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
