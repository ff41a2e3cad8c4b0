import { type Isolation, key, Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import postgres from 'postgres'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, RunSize } from './bench.ts'
import { compare, type Contender } from './compare.ts'
import { addByHand, addTo, addToMany, CREATE, foreignLocks, type Table } from './guard.sql.ts'
import { openPool } from './harness/openPool.ts'
import { showSpread } from './harness/spread.ts'

const SIZES: Readonly<Record<RunSize, { pairs: number; count: number }>> = {
  full: { pairs: 1000, count: 24 },
  quick: { pairs: 160, count: 20 },
  smoke: { pairs: 2, count: 10 },
}

const AT_MOST = 1.1
const FOREIGN_LOCKS = 3000
const MANY_ROWS = 1000
/** The slow way is timed in fewer turns: it is printed, not judged. */
const SLOW_SHARE = 0.2

/** What a guard costs: a transaction of Lockstep that writes one row, and those that the guard has to look up in the list of locks. */
export const guard: Bench = {
  name: 'guard',
  about:
    'a locked transaction that writes a guarded row against the same without a guard; writers that the guard does not know',
  baselines: { 'the same table without a guard': CREATE },
  async run(thoroughness, reportProgress) {
    const { pairs, count } = SIZES[thoroughness]
    const server = await startPostgres({ durable: true, settings: { max_locks_per_transaction: '256' } })
    const pool = openPool(server.url(), 4)
    const sql = postgres(server.url(), { max: 4, onnotice: () => undefined })
    const results: ResultRow[] = []
    const goals: Goal[] = []
    const row = async (writer: string, contender: (table: Table) => Contender, share = 1): Promise<number> => {
      const [turns, times] = [Math.max(2, Math.round(pairs * share)), Math.max(1, Math.round(count * share))]
      const compared = await compare(contender('plain_account'), contender('guarded_account'), turns, times)
      const { baselineUs, candidateUs, ratio, spread } = compared
      results.push({
        writer,
        'without µs': baselineUs,
        'guarded µs': candidateUs,
        ratio,
        'middle half': showSpread(spread),
      })
      return ratio
    }
    try {
      const owner = new Lockstep(pool)
      await owner.migrate()
      await pool.query(CREATE)
      await owner.guards.add('guarded_account', { key: 'Account:{id}', mode: 'enforce' })
      // Without the flush, which would hide it.
      for (const flush of ['off', 'on']) {
        await pool.query(`ALTER SYSTEM SET synchronous_commit = ${flush}`)
        await pool.query('SELECT pg_reload_conf()')
        for (const driver of ['pg', 'postgres'] as const) {
          const lockstep = new Lockstep(driver === 'pg' ? pool : sql) as unknown as Lockstep
          for (const isolation of ['read committed', 'serializable'] as const) {
            const name = `Lockstep, ${driver}, ${isolation}, synchronous_commit ${flush}`
            reportProgress(`guard: ${name}`, results.length / 12)
            const ratio = await row(name, (table) => locked(lockstep, isolation, table))
            goals.push(goal(`${name}: ratio to no guard`, ratio, '<=', AT_MOST))
          }
        }
      }
      const [{ listed, unlocked, refused } = { listed: -1, unlocked: -1, refused: -1 }] = await owner.guards.list()
      goals.push(goal('transactions of Lockstep on the slow way', listed + unlocked + refused, '=', 0))
      await pool.query('ALTER SYSTEM SET synchronous_commit = off')
      await pool.query('SELECT pg_reload_conf()')
      await owner.guards.set('guarded_account', 'observe')
      reportProgress('guard: the slow way', 0.8)
      await row('plain SQL that locks', (table) => byHand(pool, table, true), SLOW_SHARE)
      await row('plain SQL without the lock, observed', (table) => byHand(pool, table, false), SLOW_SHARE)
      await row(`one statement, ${MANY_ROWS} rows, observed`, (table) => many(pool, table), SLOW_SHARE / 10)
      const other = await pool.connect()
      await other.query(foreignLocks(FOREIGN_LOCKS))
      await row(
        `plain SQL that locks, ${FOREIGN_LOCKS} locks of others`,
        (table) => byHand(pool, table, true),
        SLOW_SHARE,
      )
      other.release(true)
      return { results, goals }
    } finally {
      await sql.end()
      await pool.end()
      await server.stop()
    }
  },
}

function locked(lockstep: Lockstep, isolation: Isolation, table: Table): Contender {
  const add = addTo(table)
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const id = (number % 1000) + 1
      await lockstep.transaction({ lock: key`Account:${id}`, isolation }, (tx) => tx.query(add, [id]))
    }
  }
}

function byHand(pool: pg.Pool, table: Table, locks: boolean): Contender {
  return async (count) => {
    for (let number = 0; number < count; number++) await pool.query(addByHand(table, (number % 1000) + 1, locks))
  }
}

function many(pool: pg.Pool, table: Table): Contender {
  return async (count) => {
    for (let number = 0; number < count; number++) await pool.query(addToMany(table, MANY_ROWS))
  }
}
