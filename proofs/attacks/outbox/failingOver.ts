import type { Pool } from 'pg'
import { type PostgresServer, startPostgres } from '../../../tools/server/postgres.ts'
import { SERVER_15 } from '../../../tools/server/postgres15.ts'
import { startProxy } from 'pg-lockstep/testing'
import { type Standby, startStandby } from '../../../tools/server/standby.ts'
import { type Arrival, Arrivals } from '../../checkers/arrivals.ts'
import type { Random } from '../../seed.ts'
import type { ReportProgress } from '../attack.ts'
import { until } from '../../until.ts'
import { openDatabase } from '../database.ts'
import { Dispatchers } from './dispatchers.ts'
import { ALL_EVENTS } from './outbox.sql.ts'
import { RecordingSink, startRun } from './recording.ts'
import { SETTLED_MS, writeOn } from './restoring.ts'
import { HAS_DISPATCHERS, TIMELINE } from './restoring.sql.ts'
import { Writings } from './writers.ts'

const TTL_MS = 1500
/** So many deliveries show that events arrive. */
const FLOWING = 300
/** What a standby keeps up with must still be there. */
const SETTINGS = { max_connections: '100', wal_keep_size: '512MB' }

/** The outcome of an outbox whose server is lost again and again, each time with its standby promoted. */
export interface FailedOver {
  readonly failovers: number
  readonly timeline: number
  /** Dispatchers on a standby that were refused by name, of one for each failover. */
  readonly refused: number
  readonly reached: number
  readonly events: number
  readonly deliveries: number
  readonly duplicates: number
  readonly outOfOrder: number
  readonly diverged: number
  /** Acknowledged, and not on the last primary. */
  readonly lost: number
  readonly sentAndNotThere: number
  readonly thereAndNotSent: number
  readonly rolledBack: number
  readonly examples: readonly string[]
}

/**
 * Writers and two processes that dispatch have one address. Behind it a primary is stopped as by a crash, its synchronous standby takes
 * the place, before or after its promotion, and another standby is made of it. No process is started again.
 */
export async function failOver(failovers: number, reportProgress: ReportProgress, random: Random): Promise<FailedOver> {
  let current: { server: PostgresServer; stop(mode?: 'immediate'): Promise<void> }
  const first = await startPostgres({ binariesFrom: SERVER_15, settings: SETTINGS })
  current = { server: first, stop: (mode) => first.stop(mode) }
  const address = {
    get targetPort(): number {
      return current.server.port
    },
  }
  const proxy = await startProxy(address)
  const url = proxy.url(first.url())
  const arrivals = new Arrivals()
  const dispatchers = new Dispatchers(url, arrivals, { ttlMs: TTL_MS, shards: 4, random })
  const writings = new Writings(random)
  const database = openDatabase(url)
  let writing: Promise<unknown> | undefined
  const refusal = { refused: 0, reached: 0 }
  try {
    await database.lockstep.migrate()
    writing = writeOn(database, writings)
    dispatchers.start(2)
    for (let number = 0; number < failovers; number++) {
      reportProgress(`restore: failover ${number + 1} of ${failovers}`)
      await flowing(arrivals)
      const standby = await startStandby(current.server, SETTINGS)
      const lost = current
      try {
        await refuse(standby, refusal, random)
        await standby.makeSynchronous()
        await flowing(arrivals)
        await lost.stop('immediate')
        if (number % 2 === 0) {
          current = standby
          await metBy(standby)
          await standby.promote()
        } else {
          await standby.promote()
          current = standby
        }
      } finally {
        if (current !== standby) await standby.stop('immediate')
      }
    }
    await flowing(arrivals)
    writings.over = true
    await writing
    const stored = (await database.pool.query<Arrival>(ALL_EVENTS)).rows
    const marks = new Set(stored.map(({ mark }) => mark))
    await until(() => arrivals.missing(marks) === 0, SETTLED_MS)
    return { failovers, ...refusal, ...(await judge(database.pool, arrivals, writings, stored)) }
  } finally {
    writings.over = true
    await dispatchers.killAll()
    await writing?.catch(() => undefined)
    await database.close()
    await proxy.close()
    await current.stop('immediate')
  }
}

/** Comes back when events arrive: what is struck must be in flight. */
async function flowing(arrivals: Arrivals): Promise<void> {
  const before = arrivals.count
  await until(() => arrivals.count >= before + FLOWING, SETTLED_MS)
}

async function refuse(standby: Standby, refusal: { refused: number; reached: number }, random: Random): Promise<void> {
  const database = openDatabase(standby.server.url())
  const sink = new RecordingSink(random)
  const code = await startRun(database.lockstep, { sink }).ended
  if (code === 'LOCKSTEP_STANDBY') refusal.refused++
  if (sink.opened || sink.arrivals.count > 0) refusal.reached++
  await database.close()
}

/** Comes back when a dispatcher has come to it while it is a standby. */
async function metBy(standby: Standby): Promise<void> {
  const database = openDatabase(standby.server.url())
  await until(
    async () => (await database.pool.query<{ yes: boolean }>(HAS_DISPATCHERS)).rows[0]?.yes === true,
    SETTLED_MS,
  )
  await database.close()
}

async function judge(
  pool: Pool,
  arrivals: Arrivals,
  writings: Writings,
  stored: readonly Arrival[],
): Promise<Omit<FailedOver, 'failovers' | 'refused' | 'reached'>> {
  const { rows } = await pool.query<{ timeline: number }>(TIMELINE)
  const marks = new Set(stored.map(({ mark }) => mark))
  const { events, deliveries, duplicates, outOfOrder, diverged, examples } = arrivals.report()
  return {
    timeline: rows[0]?.timeline ?? 0,
    events,
    deliveries,
    duplicates,
    outOfOrder,
    diverged,
    lost: [...writings.committed].filter((mark) => !marks.has(mark)).length,
    sentAndNotThere: arrivals.notIn(stored),
    thereAndNotSent: arrivals.missing(marks),
    rolledBack: arrivals.arrived(writings.rolledBack),
    examples,
  }
}
