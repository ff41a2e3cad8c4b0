import { createHash } from 'node:crypto'
import { type Isolation, key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import { startProxy } from '../tools/server/proxy.ts'
import type { Bench, Thoroughness } from './bench.ts'
import { compare, type Contender } from './compare.ts'
import { ADD, COMMIT, CREATE, handOverByHand, openByHand, ROLLBACK } from './locks.sql.ts'

const SIZES: Readonly<Record<Thoroughness, { pairs: number; count: number }>> = {
  full: { pairs: 60, count: 300 },
  quick: { pairs: 24, count: 200 },
  smoke: { pairs: 6, count: 40 },
}

/** How much slower than by hand a smoke run may look: it is there to see the bench work, not to measure. */
const BOUND: Readonly<Record<Thoroughness, number>> = { full: 1.1, quick: 1.1, smoke: 2 }

const ISOLATIONS: readonly Isolation[] = ['read committed', 'serializable']

/** What a locked transaction costs when nobody else wants the lock, against the same by hand; and its round trips on the wire. */
export const locks: Bench = {
  name: 'locks',
  about: 'an uncontended transaction with a lock against the hand-written form; round trips counted on the wire',
  baselines: {
    pg: withPgByHand.toString(),
    postgres: withPostgresJsByHand.toString(),
    sql: `${openByHand.toString()}\n${handOverByHand.toString()}`,
  },
  async run(thoroughness, tell) {
    const { pairs, count } = SIZES[thoroughness]
    const server = await startPostgres({ durable: true })
    const results: ResultRow[] = []
    const goals: Goal[] = []
    const pool = new pg.Pool({ connectionString: server.url(), max: 4 })
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
            tell(`locks: ${driver}, ${isolation}, synchronous_commit ${flush}`)
            const byHand = driver === 'pg' ? withPgByHand(pool, isolation) : withPostgresJsByHand(sql, isolation)
            const lockstep = new Lockstep(driver === 'pg' ? pool : sql) as unknown as Lockstep
            const { baselineUs, candidateUs, ratio } = await compare(
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
            })
            const name = `${driver}, ${isolation}, synchronous_commit ${flush}: ratio to by hand`
            goals.push(goal(name, ratio, '<=', BOUND[thoroughness]))
          }
        }
      }
      tell('locks: round trips')
      for (const driver of ['pg', 'postgres'] as const) {
        for (const isolation of ISOLATIONS) {
          const extra = await roundTripsBesideTheCallers(server.url(), driver, isolation)
          goals.push(goal(`${driver}, ${isolation}: round trips beside the caller's own`, extra, '=', 2))
        }
      }
      return { results, goals }
    } finally {
      await sql.end()
      await pool.end()
      await server.stop()
    }
  },
}

function withLockstep(lockstep: Lockstep, isolation: Isolation): Contender {
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const id = (number % 1000) + 1
      await lockstep.transaction({ lock: key`Account:${id}`, isolation }, async (tx) => {
        await tx.query(ADD, [id])
      })
    }
  }
}

function withPgByHand(pool: pg.Pool, isolation: Isolation): Contender {
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
