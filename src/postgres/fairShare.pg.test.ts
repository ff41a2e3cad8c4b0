import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import pg from 'pg'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import type { Driver } from './connection.ts'
import { driverFor } from './driver.ts'

const database = await testDatabase()

/** Enough to keep every connection busy and a queue in front of it. */
const CROWD = 300
const POOL_SIZE = 4
const ROUNDS = 6
/** What a round trip more may cost on a busy machine. */
const SLACK_MS = 250

const cleanUp = cleanUps()

type Sql = postgres.Sql

function openSql(options: postgres.Options<{}> = {}): Sql {
  const sql = postgres(database.url, { max: POOL_SIZE, onnotice() {}, ...options })
  cleanUp(() => sql.end({ timeout: 1 }))
  return sql
}

/**
 * Callers without Lockstep, each of which asks again as soon as it is answered. Resolves when there were as many answers as callers: some
 * may have none yet, because postgres.js passes over those that wait in its queue.
 */
async function crowd(work: () => Promise<unknown>): Promise<void> {
  const stopping = new AbortController()
  let answers = 0
  let full: () => void
  const filled = new Promise<void>((resolve) => (full = resolve))
  const callers = Array.from({ length: CROWD }, async () => {
    while (!stopping.signal.aborted) {
      await work()
      if (++answers === CROWD) full()
    }
  })
  cleanUp(() => {
    stopping.abort()
    return Promise.all(callers)
  })
  await filled
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

async function takeAndRelease(driver: Driver): Promise<void> {
  const connection = await driver.connect()
  await connection.script('SELECT 1')
  connection.release()
}

/** How long the one and the other wait in the same crowd. */
async function compareWaits(
  theirs: () => Promise<unknown>,
  ours: () => Promise<unknown>,
): Promise<{ theirsMs: number; oursMs: number }> {
  let theirsMs = 0
  let oursMs = 0
  for (let round = 0; round < ROUNDS; round++) {
    const [begin, connect] = await Promise.all([timed(theirs), timed(ours)])
    theirsMs += begin
    oursMs += connect
  }
  return { theirsMs: theirsMs / ROUNDS, oursMs: oursMs / ROUNDS }
}

const nap = (sql: Sql): Promise<unknown> => sql.unsafe('SELECT pg_sleep(0.002)')
async function reserveOnce(sql: Sql): Promise<void> {
  const reserved = await sql.reserve()
  await reserved.unsafe('SELECT 1')
  reserved.release()
}

/** A BEGIN that happens to be the hundredth query on a connection is refused by postgres.js. */
async function beginOnce(sql: Sql): Promise<void> {
  for (let begun = false; !begun;) {
    begun = await sql
      .begin((tx) => tx.unsafe('SELECT 1'))
      .then(
        () => true,
        (error: { code?: string }) => {
          if (error.code === 'UNSAFE_TRANSACTION') return false
          throw error
        },
      )
  }
}

describe('postgres.js', () => {
  const crowds: [string, (sql: Sql) => Promise<unknown>, postgres.Options<{}>][] = [
    ['queries', nap, {}],
    ['queries without fetch_types', nap, { fetch_types: false }],
    ['transactions', beginOnce, {}],
    ['reserved connections', reserveOnce, {}],
  ]

  test.each(crowds)(
    'a connection comes as soon as to sql.begin, among 300 callers with %s',
    async (_, work, options) => {
      const sql = openSql(options)
      const driver = driverFor(sql)
      await takeAndRelease(driver)
      await crowd(() => work(sql))
      const { theirsMs, oursMs } = await compareWaits(
        () => beginOnce(sql),
        () => takeAndRelease(driver),
      )
      expect(oursMs).toBeLessThanOrEqual(2 * theirsMs + SLACK_MS)
    },
  )

  test.each(crowds)(
    'so it does in a pool that was never idle since it was first used, with %s',
    async (_, work, options) => {
      const sql = openSql(options)
      await crowd(() => work(sql))
      const driver = driverFor(sql)
      const { theirsMs, oursMs } = await compareWaits(
        () => beginOnce(sql),
        () => takeAndRelease(driver),
      )
      expect(oursMs).toBeLessThanOrEqual(2 * theirsMs + SLACK_MS)
    },
  )

  test('who comes while the connections are being opened is not passed over by those that come later', async () => {
    const sql = openSql()
    const filled = crowd(() => nap(sql))
    await takeAndRelease(driverFor(sql))
    await filled
  })

  test('many callers share with as many transactions of others, and none is passed over', async () => {
    const sql = openSql()
    const driver = driverFor(sql)
    await crowd(() => beginOnce(sql))
    const { theirsMs, oursMs } = await compareWaits(
      () => Promise.all(Array.from({ length: CROWD }, () => beginOnce(sql))),
      () => Promise.all(Array.from({ length: CROWD }, () => takeAndRelease(driver))),
    )
    expect(oursMs).toBeLessThanOrEqual(2 * theirsMs + SLACK_MS)
  })
})

test('pg: a connection comes as soon as to pool.connect, among 300 callers', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: POOL_SIZE })
  cleanUp(() => pool.end())
  const driver = driverFor(pool)
  await crowd(() => pool.query('SELECT pg_sleep(0.002)'))
  const { theirsMs, oursMs } = await compareWaits(
    async () => {
      const client = await pool.connect()
      await client.query('SELECT 1')
      client.release()
    },
    () => takeAndRelease(driver),
  )
  expect(oursMs).toBeLessThanOrEqual(2 * theirsMs + SLACK_MS)
})
