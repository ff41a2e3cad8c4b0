import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../tools/server/postgres.ts'
import type { Bench, Thoroughness } from './bench.ts'
import { compare, type Comparison, type Contender, median } from './compare.ts'
import {
  BEGIN,
  CHECKPOINT,
  COMMIT,
  CREATE_PLAIN,
  DEAD_EVENTS,
  enqueueInSql,
  INSERT_PLAIN,
  readPlainly,
  ROLLBACK,
  setFlush,
  vacuum,
} from './outbox.sql.ts'
import { drain } from './outboxDrain.ts'
import { CONNECTIONS, eventOf, fill, KEYS, onAllConnections, valuesOf } from './outboxEvents.ts'
import { type HorizonSize, measureHorizon } from './outboxHorizon.ts'

interface Size {
  /** Of enqueuing, in turns with what it is compared with. */
  readonly pairs: number
  readonly count: number
  /** Of draining, the same; and how many events are drained at a time. */
  readonly drainPairs: number
  readonly drained: number
  readonly backlog: number
  readonly smallBacklog: number
  readonly backlogPairs: number
  readonly horizon: HorizonSize
}

const SIZES: Readonly<Record<Thoroughness, Size>> = {
  full: {
    pairs: 30,
    count: 2000,
    drainPairs: 5,
    drained: 500_000,
    backlog: 5_000_000,
    smallBacklog: 10_000,
    backlogPairs: 15,
    horizon: { ms: 60_000, singles: 1000, many: 20_000 },
  },
  quick: {
    pairs: 16,
    count: 600,
    drainPairs: 3,
    drained: 100_000,
    backlog: 500_000,
    smallBacklog: 10_000,
    backlogPairs: 9,
    horizon: { ms: 10_000, singles: 500, many: 10_000 },
  },
  smoke: {
    pairs: 1,
    count: 40,
    drainPairs: 1,
    drained: 6000,
    backlog: 8000,
    smallBacklog: 4000,
    backlogPairs: 1,
    horizon: { ms: 300, singles: 40, many: 2000 },
  },
}

/** Of a small backlog, so much is drained against the clock: its last batches are smaller than any of a large one. */
const MEASURED_SHARE = 0.8
const ENOUGH_A_SECOND = 100_000
const ENOUGH_OF_SELECT = 0.6

/** What the outbox costs who writes and who delivers; and that neither a backlog nor an old snapshot makes it dearer. */
export const outbox: Bench = {
  name: 'outbox',
  about: 'enqueue against a plain INSERT; drain against a SELECT; a large backlog; an old snapshot; dead tuples',
  baselines: {
    'plain INSERT': `${CREATE_PLAIN}\n${insertByHand.toString()}`,
    SELECT: readPlainly('lockstep'),
  },
  async run(thoroughness, tell) {
    const size = SIZES[thoroughness]
    // As it comes, with every commit on disk before it is answered.
    const server = await startPostgres({ durable: true, settings: { max_connections: '200', max_wal_size: '4GB' } })
    const admin = new pg.Pool({ connectionString: server.url(), max: 1 })
    const pool = new pg.Pool({ connectionString: server.url(), max: CONNECTIONS })
    const [small, large] = ['small', 'large'].map((schema) => new Lockstep(pool, { schema })) as unknown as [
      Lockstep,
      Lockstep,
    ]
    const results: ResultRow[] = []
    const goals: Goal[] = []
    // A smoke run is there to see the bench work, not to measure.
    const atLeast = (name: string, value: number, bound: number): void =>
      void goals.push(goal(name, value, '>=', thoroughness === 'smoke' ? 0 : bound))
    const atMost = (name: string, value: number, bound: number): void =>
      void goals.push(goal(name, value, '<=', thoroughness === 'smoke' ? bound * 10 : bound))
    try {
      await small.migrate()
      await large.migrate()
      await admin.query(CREATE_PLAIN)
      await new Lockstep(pool).migrate()

      for (const flush of [true, false]) {
        for (const way of ['in a transaction', 'autocommit'] as const) {
          const name = `enqueue, ${way}, synchronous_commit ${flush ? 'on' : 'off'}`
          tell(`outbox: ${name}`)
          await inOrder(setFlush(flush), (text) => admin.query(text))
          const { rates, ratio } = ratesOf(await compareEnqueuing(pool, way, size))
          results.push({
            what: `${name}, events/s`,
            lockstep: rates.candidate,
            beside: rates.baseline,
            of: 'INSERT',
            ratio,
          })
          if (flush && way === 'in a transaction') atLeast(`${name}: rate, in plain INSERTs`, ratio, 0.85)
        }
      }
      // What costs the disk hides what costs the backlog: off from here on.

      tell(`outbox: filling ${size.drained}`)
      await fill(small, size.smallBacklog)
      let filled = await fill(large, Math.max(size.drained, Math.min(size.backlog, 500_000)))
      await settle(admin)
      const drained = await compareDraining(pool, large, size, tell)
      results.push({
        what: `drain ${size.drained} of ${filled} events, events/s`,
        lockstep: Math.round(drained.rate),
        beside: Math.round(drained.selected),
        of: 'one SELECT',
        ratio: drained.ratio,
      })
      atLeast(
        `drain: events/s in ${ENOUGH_A_SECOND}, or in ${ENOUGH_OF_SELECT} of a SELECT's, whichever is more`,
        Math.max(drained.rate / ENOUGH_A_SECOND, drained.ratio / ENOUGH_OF_SELECT),
        1,
      )

      if (filled < size.backlog) {
        tell(`outbox: filling ${size.backlog}`)
        filled += await fill(large, size.backlog - filled)
        await settle(admin)
      }
      const backlogs = await compareBacklogs(small, large, size, tell)
      for (const [what, { baselineUs, candidateUs, ratio }] of Object.entries(backlogs)) {
        results.push({
          what: `${what} with a backlog of ${filled}, µs`,
          lockstep: candidateUs,
          beside: baselineUs,
          of: `backlog of ${size.smallBacklog}`,
          ratio,
        })
        atMost(`${what} with a backlog of ${filled}, in those with ${size.smallBacklog}`, ratio, 1.2)
      }

      const horizon = await measureHorizon(server, admin, size.horizon, tell)
      for (const [what, { held, free, ratio }] of Object.entries(horizon)) {
        const name = `${what} under a snapshot of ${size.horizon.ms / 1000} s`
        results.push({
          what: `${name}, events/s`,
          lockstep: Math.round(held),
          beside: Math.round(free),
          of: 'no snapshot',
          ratio,
        })
        atLeast(`${name}, in the rate without`, ratio, 0.9)
      }

      await Promise.all([small.close(), large.close()])
      // A session that ends has told the statistics what it did.
      await pool.end()
      goals.push(goal('dead tuples among the events', await deadEvents(server, ['postgres', 'held', 'free']), '=', 0))
      return { results, goals }
    } finally {
      await Promise.all([small.close(), large.close()])
      if (!pool.ended) await pool.end()
      await admin.end()
      await server.stop()
    }
  },
}

async function inOrder<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  for (const item of items) await work(item)
}

function compareEnqueuing(pool: pg.Pool, way: 'in a transaction' | 'autocommit', size: Size): Promise<Comparison> {
  const lockstep = new Lockstep(pool) as unknown as Lockstep
  const enqueue = enqueueInSql('lockstep')
  const [byHand, ours]: [Contender, Contender] =
    way === 'in a transaction'
      ? [
          onAllConnections((number) => insertByHand(pool, number)),
          onAllConnections((number) => lockstep.transaction({}, (tx) => tx.enqueue(eventOf(number)))),
        ]
      : [
          onAllConnections((number) => pool.query(INSERT_PLAIN, valuesOf(number))),
          onAllConnections((number) => pool.query(enqueue, valuesOf(number))),
        ]
  return compare(byHand, ours, size.pairs, size.count)
}

async function insertByHand(pool: pg.Pool, number: number): Promise<void> {
  const client = await pool.connect()
  try {
    await client.query(BEGIN)
    await client.query(INSERT_PLAIN, valuesOf(number))
    await client.query(COMMIT)
  } catch (error) {
    await client.query(ROLLBACK)
    throw error
  } finally {
    client.release()
  }
}

function ratesOf({ baselineUs, candidateUs, ratio }: Comparison): {
  rates: { baseline: number; candidate: number }
  ratio: number
} {
  const rate = (us: number): number => Math.round(1_000_000 / us)
  return { rates: { baseline: rate(baselineUs), candidate: rate(candidateUs) }, ratio: 1 / ratio }
}

async function settle(admin: pg.Pool): Promise<void> {
  await inOrder(['small', 'large'], (schema) => admin.query(vacuum(schema)))
  await admin.query(CHECKPOINT)
}

/** In turns: the first events of the backlog, by a dispatcher and by a SELECT. */
async function compareDraining(
  pool: pg.Pool,
  lockstep: Lockstep,
  size: Size,
  tell: (text: string) => void,
): Promise<{ rate: number; selected: number; ratio: number }> {
  const rounds: { rate: number; selected: number }[] = []
  const select = async (): Promise<number> => {
    const startedAt = performance.now()
    const { rows } = await pool.query(readPlainly('large'), [size.drained])
    return (rows.length / (performance.now() - startedAt)) * 1000
  }
  for (let pair = 0; pair < size.drainPairs; pair++) {
    tell(`outbox: draining ${size.drained}, ${pair + 1} of ${size.drainPairs}`)
    const early = pair % 2 === 0 ? await select() : undefined
    const { events, ms } = await drain(lockstep, size.drained)
    rounds.push({ rate: (events / ms) * 1000, selected: early ?? (await select()) })
  }
  return {
    rate: median(rounds.map(({ rate }) => rate)),
    selected: median(rounds.map(({ selected }) => selected)),
    ratio: median(rounds.map(({ rate, selected }) => rate / selected)),
  }
}

/**
 * The steady cost of one event. Enqueuing: single events to the same 1,000 streams, which have a few numbers behind them or many.
 * Draining: the same number of the oldest events, of all that there is or of the little that there is.
 */
async function compareBacklogs(
  small: Lockstep,
  large: Lockstep,
  size: Size,
  tell: (text: string) => void,
): Promise<{ enqueue: Comparison; drain: Comparison }> {
  const upTo = size.smallBacklog * MEASURED_SHARE
  const drainUs = async (lockstep: Lockstep): Promise<number> => {
    const { events, ms } = await drain(lockstep, upTo)
    return (ms / events) * 1000
  }
  const rounds: { baselineUs: number; candidateUs: number }[] = []
  for (let pair = 0; pair < size.backlogPairs; pair++) {
    tell(`outbox: backlogs, ${pair + 1} of ${size.backlogPairs}`)
    const smallFirst = pair % 2 === 0
    const first = await drainUs(smallFirst ? small : large)
    const second = await drainUs(smallFirst ? large : small)
    rounds.push(smallFirst ? { baselineUs: first, candidateUs: second } : { baselineUs: second, candidateUs: first })
  }
  tell(`outbox: enqueuing to ${KEYS} streams with a backlog`)
  const enqueueTo = (lockstep: Lockstep): Contender =>
    onAllConnections((number) => lockstep.transaction({}, (tx) => tx.enqueue(eventOf(number))))
  return {
    enqueue: await compare(enqueueTo(small), enqueueTo(large), size.pairs, size.count),
    drain: {
      baselineUs: median(rounds.map((round) => round.baselineUs)),
      candidateUs: median(rounds.map((round) => round.candidateUs)),
      ratio: median(rounds.map((round) => round.candidateUs / round.baselineUs)),
    },
  }
}

/** NaN, which no goal holds for, where the statistics know of no events. */
async function deadEvents(server: PostgresServer, databases: readonly string[]): Promise<number> {
  let dead = 0
  await inOrder(databases, async (database) => {
    const client = new pg.Client(server.url(database))
    await client.connect()
    const { rows } = await client.query<{ dead: number; events: number }>(DEAD_EVENTS)
    dead += (rows[0]?.events ?? 0) > 0 ? (rows[0]?.dead ?? Number.NaN) : Number.NaN
    await client.end()
  })
  return dead
}
