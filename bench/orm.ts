import { createHash } from 'node:crypto'
import { type Isolation, key, Lockstep } from 'pg-lockstep'
import postgres from 'postgres'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { ormsUnderTest } from '../tools/orms/underTest/index.ts'
import type { OpenOrm } from '../tools/orms/underTest/ormUnderTest.ts'
import { CREATE_ORM_TABLES, START_COUNTER } from '../tools/orms/underTest/tables.sql.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, RunSize } from './bench.ts'
import { compare, type Contender } from './compare.ts'
import { openPool } from './harness/openPool.ts'
import { showSpread } from './harness/spread.ts'
import { lockByHand } from './orm.sql.ts'

const SIZES: Readonly<Record<RunSize, { pairs: number; count: number }>> = {
  full: { pairs: 24, count: 150 },
  quick: { pairs: 8, count: 100 },
  smoke: { pairs: 2, count: 10 },
}

const AT_MOST = 1.15
const COUNTERS = 100
const ISOLATION: Isolation = 'read committed'

/** What a transaction through an ORM costs under Lockstep, against the ORM's own with a lock that is taken by hand. */
export const orm: Bench = {
  name: 'orm',
  about:
    "an ORM's transaction through Lockstep against the ORM's own transaction with a hand-written pg_advisory_xact_lock",
  baselines: { own: byHand.toString(), sql: lockByHand.toString() },
  async run(thoroughness, reportProgress) {
    const { pairs, count } = SIZES[thoroughness]
    const server = await startPostgres({ durable: true })
    const pool = openPool(server.url(), 4)
    const results: ResultRow[] = []
    const goals: Goal[] = []
    try {
      await new Lockstep(pool).migrate()
      await pool.query(CREATE_ORM_TABLES)
      for (let number = 0; number < COUNTERS; number++) await pool.query(START_COUNTER, [nameOf(number)])
      // The flush to disk takes the same time for both, and would hide what the library costs.
      await pool.query('ALTER SYSTEM SET synchronous_commit = off')
      await pool.query('SELECT pg_reload_conf()')
      for (const [place, entry] of ormsUnderTest.entries()) {
        reportProgress(`orm: ${entry.name}`, place / ormsUnderTest.length)
        // A pool for each: postgres.js and Drizzle change the parsers of theirs.
        const own = entry.driver === 'pg' ? openPool(server.url(), 4) : postgres(server.url(), { max: 4 })
        const lockstep = new Lockstep(own) as unknown as Lockstep
        const open = await (await entry.load()).open({ lockstep, pool: own, url: server.url() })
        const { baselineUs, candidateUs, ratio, spread } = await compare(
          byHand(open),
          throughLockstep(lockstep, open),
          pairs,
          count,
        )
        await open.close()
        await lockstep.close()
        await own.end()
        results.push({
          orm: entry.name,
          'own transaction µs': baselineUs,
          'through Lockstep µs': candidateUs,
          ratio,
          'middle half': showSpread(spread),
        })
        goals.push(goal(`${entry.name}: ratio to its own transaction`, ratio, '<=', AT_MOST))
      }
      return { results, goals }
    } finally {
      await pool.end()
      await server.stop()
    }
  },
}

const nameOf = (number: number): string => `counter ${number % COUNTERS}`

/** The lock, a read and a write in the ORM's own transaction. */
function byHand(open: OpenOrm): Contender {
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const name = nameOf(number)
      const lockId = createHash('sha256').update(`lockstep\0lock\0Counter:${name}`).digest().readBigInt64BE(0)
      await open.own(ISOLATION, async (part) => {
        await part.raw(lockByHand(lockId))
        await part.writeCounter(name, (await part.readCounter(name)) + 1)
      })
    }
  }
}

/** The same with the declared lock. */
function throughLockstep(lockstep: Lockstep, open: OpenOrm): Contender {
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const name = nameOf(number)
      await lockstep.transaction({ lock: key`Counter:${name}`, isolation: ISOLATION }, (tx) =>
        open.inside(tx, async (part) => {
          await part.writeCounter(name, (await part.readCounter(name)) + 1)
        }),
      )
    }
  }
}
