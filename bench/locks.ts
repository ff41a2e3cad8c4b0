import { createHash } from 'node:crypto'
import { type Isolation, key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import { startProxy } from 'pg-lockstep/testing'
import type { Bench, Limit, RunSize } from './bench.ts'
import { compare, type Contender } from './compare.ts'
import { ensurePeers, loadPeer } from './harness/peers.ts'
import { showSpread } from './harness/spread.ts'
import { ADD, COMMIT, CREATE, handOverByHand, openByHand, ROLLBACK } from './locks.sql.ts'
import { openPool } from './harness/openPool.ts'

const SIZES: Readonly<Record<RunSize, { pairs: number; count: number }>> = {
  full: { pairs: 800, count: 25 },
  quick: { pairs: 160, count: 20 },
  smoke: { pairs: 2, count: 20 },
}

const AT_MOST = 1.05
const LIMIT = 'the messages of a locked transaction by hand, one flush if it is on'
/** It opens a connection for every lock: fewer tell as much. */
const PEER_SHARE = 0.1

const ISOLATIONS: readonly Isolation[] = ['read committed', 'serializable']

/** What a locked transaction costs when no other caller wants the lock, against the same by hand; and its round trips on the wire. */
export const locks: Bench = {
  name: 'locks',
  about:
    'an uncontended transaction with a lock against the hand-written form and the npm package advisory-lock; round trips',
  baselines: {
    pg: withPgByHand.toString(),
    postgres: withPostgresJsByHand.toString(),
    'advisory-lock': besideAdvisoryLock.toString(),
    sql: `${openByHand.toString()}\n${handOverByHand.toString()}`,
  },
  async run(thoroughness, reportProgress) {
    const { pairs, count } = SIZES[thoroughness]
    ensurePeers()
    const server = await startPostgres({ durable: true })
    const results: ResultRow[] = []
    const goals: Goal[] = []
    const limits: Limit[] = []
    const pool = openPool(server.url(), 4)
    const sql = postgres(server.url(), { max: 4, onnotice: () => undefined })
    try {
      await new Lockstep(pool).migrate()
      await pool.query(CREATE)
      // Once as it is, once without the flush: the disk hides what the library costs.
      for (const flush of ['on', 'off']) {
        await pool.query(`ALTER SYSTEM SET synchronous_commit = ${flush}`)
        await pool.query('SELECT pg_reload_conf()')
        for (const isolation of ISOLATIONS) {
          for (const driver of ['pg', 'postgres'] as const) {
            reportProgress(`locks: ${driver}, ${isolation}, synchronous_commit ${flush}`, results.length / 9)
            const byHand = driver === 'pg' ? withPgByHand(pool, isolation) : withPostgresJsByHand(sql, isolation)
            const lockstep = new Lockstep(driver === 'pg' ? pool : sql) as unknown as Lockstep
            const { baselineUs, candidateUs, ratio, spread } = await compare(
              byHand,
              withLockstep(lockstep, isolation),
              pairs,
              count,
            )
            results.push({
              driver,
              isolation,
              synchronous_commit: flush,
              'by hand µs': baselineUs,
              'lockstep µs': candidateUs,
              ratio,
              'middle half': showSpread(spread),
            })
            const name = `${driver}, ${isolation}, synchronous_commit ${flush}: ratio to by hand`
            const inLimit = goal(name, ratio, '<=', AT_MOST)
            goals.push(inLimit)
            limits.push({
              what: `locked transaction: ${driver}, ${isolation}, synchronous_commit ${flush}`,
              unit: 'µs',
              lockstep: candidateUs,
              limit: baselineUs,
              program: LIMIT,
              goal: inLimit,
            })
          }
        }
      }
      reportProgress('locks: advisory-lock', 0.9)
      results.push(await besideAdvisoryLock(server.url(), pool, pairs, count))
      reportProgress('locks: round trips', 0.95)
      for (const driver of ['pg', 'postgres'] as const) {
        for (const isolation of ISOLATIONS) {
          const extra = await roundTripsBesideTheCallers(server.url(), driver, isolation)
          goals.push(goal(`${driver}, ${isolation}: round trips beside the caller's own`, extra, '=', 2))
        }
      }
      return { results, goals, limits }
    } finally {
      await sql.end()
      await pool.end()
      await server.stop()
    }
  },
}

export function withLockstep(lockstep: Lockstep, isolation: Isolation): Contender {
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const id = (number % 1000) + 1
      await lockstep.transaction({ lock: key`Account:${id}`, isolation }, async (tx) => {
        await tx.query(ADD, [id])
      })
    }
  }
}

export function withPgByHand(pool: pg.Pool, isolation: Isolation): Contender {
  const open = isolation === 'serializable' ? handOverByHand : openByHand
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const id = (number % 1000) + 1
      const lockId = createHash('sha256').update(`lockstep\0lock\0Account:${id}`).digest().readBigInt64BE(0)
      const client = await pool.connect()
      try {
        await client.query(open(lockId))
        await client.query(ADD, [id])
        await client.query(COMMIT)
      } catch (error) {
        await client.query(ROLLBACK)
        throw error
      } finally {
        client.release()
      }
    }
  }
}

function withPostgresJsByHand(sql: postgres.Sql, isolation: Isolation): Contender {
  const open = isolation === 'serializable' ? handOverByHand : openByHand
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const id = (number % 1000) + 1
      const lockId = createHash('sha256').update(`lockstep\0lock\0Account:${id}`).digest().readBigInt64BE(0)
      const reserved = await sql.reserve()
      try {
        await reserved.unsafe(open(lockId))
        await reserved.unsafe(ADD, [id], { prepare: true })
        await reserved.unsafe(COMMIT)
      } catch (error) {
        await reserved.unsafe(ROLLBACK)
        throw error
      } finally {
        reserved.release()
      }
    }
  }
}

type AdvisoryLock = (url: string) => (name: string) => { withLock(work: () => Promise<void>): Promise<void> }

/** The package of that name: a session's lock on a connection of its own, opened for the purpose, around the statement. */
async function besideAdvisoryLock(url: string, pool: pg.Pool, pairs: number, count: number): Promise<ResultRow> {
  const loaded = await loadPeer<{ default: AdvisoryLock | { default: AdvisoryLock } }>('advisory-lock')
  const advisoryLock = 'default' in loaded.default ? loaded.default.default : loaded.default
  const createMutex = advisoryLock(url)
  const theirs: Contender = async (times) => {
    for (let number = 0; number < times; number++) {
      const id = (number % 1000) + 1
      await createMutex(`Account:${id}`).withLock(async () => void (await pool.query(ADD, [id])))
    }
  }
  const ours = withLockstep(new Lockstep(pool), 'read committed')
  const times = Math.max(1, Math.round(count * PEER_SHARE))
  const { baselineUs, candidateUs, ratio, spread } = await compare(
    theirs,
    ours,
    Math.max(1, Math.round(pairs / 4)),
    times,
  )
  return {
    driver: 'pg, beside advisory-lock of npm',
    isolation: 'read committed',
    synchronous_commit: 'off',
    'by hand µs': baselineUs,
    'lockstep µs': candidateUs,
    ratio,
    'middle half': showSpread(spread),
  }
}

/** Counts what goes over the wire for one transaction, and takes off what the caller's statement alone takes. */
async function roundTripsBesideTheCallers(
  url: string,
  driver: 'pg' | 'postgres',
  isolation: Isolation,
): Promise<number> {
  const proxy = await startProxy({ targetPort: Number(new URL(url).port) })
  const through = proxy.url(url)
  const pool = driver === 'pg' ? new pg.Pool({ connectionString: through, max: 1 }) : postgres(through, { max: 1 })
  const lockstep = new Lockstep(pool as pg.Pool)
  try {
    const locked = (statements: number): Promise<void> =>
      lockstep.transaction({ lock: key`Account:${1}`, isolation }, async (tx) => {
        for (let number = 0; number < statements; number++) await tx.query(ADD, [1])
      })
    // The first one also learns the server.
    await locked(1)
    proxy.waits = 0
    await locked(0)
    return proxy.waits
  } finally {
    await pool.end()
    await proxy.close()
  }
}
