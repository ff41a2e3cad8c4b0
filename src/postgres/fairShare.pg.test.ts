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
/** What a round trip more can cost, in answers to others. */
const SLACK = CROWD / 2

/** The clock of these tests: how many answers others have had. It does not depend on the speed of the machine. */
let answers = 0

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
  const before = answers
  let full: () => void
  const filled = new Promise<void>((resolve) => (full = resolve))
  const callers = Array.from({ length: CROWD }, async () => {
    while (!stopping.signal.aborted) {
      await work()
      if (++answers === before + CROWD) full()
    }
  })
  cleanUp(() => {
    stopping.abort()
    return Promise.all(callers)
  })
  await filled
}

async function answersDuring(work: () => Promise<unknown>): Promise<number> {
  const before = answers
  await work()
  return answers - before
}

async function takeAndRelease(driver: Driver): Promise<void> {
  const connection = await driver.connect()
  await connection.script('SELECT 1')
  connection.release()
}

/** How long the one and the other wait in the same crowd, in answers to others. */
async function compareWaits(
  begin: () => Promise<unknown>,
  connect: () => Promise<unknown>,
): Promise<{ theirs: number; ours: number }> {
  let [theirs, ours] = [0, 0]
  for (let round = 0; round < ROUNDS; round++) {
    const [one, other] = await Promise.all([answersDuring(begin), answersDuring(connect)])
    theirs += one / ROUNDS
    ours += other / ROUNDS
  }
  return { theirs, ours }
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

  test.each(crowds)('serves Lockstep as soon as sql.begin, among 300 callers with %s', async (_, work, options) => {
    const sql = openSql(options)
    const driver = driverFor(sql)
    await takeAndRelease(driver)
    await crowd(() => work(sql))
    const { theirs, ours } = await compareWaits(
      () => beginOnce(sql),
      () => takeAndRelease(driver),
    )
    expect(ours).toBeLessThanOrEqual(2 * theirs + SLACK)
  })

  test.each(crowds)('serves Lockstep as soon in a pool that was never idle, with %s', async (_, work, options) => {
    const sql = openSql(options)
    await crowd(() => work(sql))
    const driver = driverFor(sql)
    const { theirs, ours } = await compareWaits(
      () => beginOnce(sql),
      () => takeAndRelease(driver),
    )
    expect(ours).toBeLessThanOrEqual(2 * theirs + SLACK)
  })

  test('serves a caller that comes while connections are being opened', async () => {
    const sql = openSql()
    const filled = crowd(() => nap(sql))
    await takeAndRelease(driverFor(sql))
    await filled
  })

  test('shares with as many transactions of others', async () => {
    const sql = openSql()
    const driver = driverFor(sql)
    await crowd(() => beginOnce(sql))
    const { theirs, ours } = await compareWaits(
      () => Promise.all(Array.from({ length: CROWD }, () => beginOnce(sql))),
      () => Promise.all(Array.from({ length: CROWD }, () => takeAndRelease(driver))),
    )
    expect(ours).toBeLessThanOrEqual(2 * theirs + SLACK)
  })
})

test('serves Lockstep as soon as pool.connect, among 300 callers, pg', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: POOL_SIZE })
  cleanUp(() => pool.end())
  const driver = driverFor(pool)
  await crowd(() => pool.query('SELECT pg_sleep(0.002)'))
  const { theirs, ours } = await compareWaits(
    async () => {
      const client = await pool.connect()
      await client.query('SELECT 1')
      client.release()
    },
    () => takeAndRelease(driver),
  )
  expect(ours).toBeLessThanOrEqual(2 * theirs + SLACK)
})
