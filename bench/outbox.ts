import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import type { Bench, Limit, ReportProgress, RunSize } from './bench.ts'
import { type ContenderName, contenders } from './contenders/all.ts'
import { Arena, percentiles, pgqIsThere, type Seat } from './contenders/arena.ts'
import { type Cost, costing } from './harness/costing.ts'
import { interleave, type Rounds, type Turn } from './harness/interleave.ts'
import { type Spent, TICK_MS } from './harness/serverCost.ts'
import { DEAD_ROWS } from './harness/serverCost.sql.ts'
import { median, showSpread } from './harness/spread.ts'
import { DEAD_EVENTS } from './outbox.sql.ts'
import { KEYS } from './outboxEvents.ts'

interface Size {
  readonly enqueueRounds: number
  readonly enqueued: number
  readonly drainRounds: number
  /** Of a backlog, at most; a slow one gets as many as it drains in so long. */
  readonly drained: number
  readonly slowMs: number
  readonly latencyMs: number
  /** Whole runs beside PgQ, each on a server of its own: from one to the next the ratio moves more than within one. */
  readonly runsBesidePgq: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: {
    enqueueRounds: 15,
    enqueued: 1500,
    drainRounds: 5,
    drained: 200_000,
    slowMs: 10_000,
    latencyMs: 5000,
    runsBesidePgq: 5,
  },
  quick: {
    enqueueRounds: 3,
    enqueued: 400,
    drainRounds: 1,
    drained: 30_000,
    slowMs: 700,
    latencyMs: 700,
    runsBesidePgq: 2,
  },
  smoke: {
    enqueueRounds: 1,
    enqueued: 24,
    drainRounds: 1,
    drained: 3000,
    slowMs: 150,
    latencyMs: 100,
    runsBesidePgq: 1,
  },
}

/** All can keep up with it, the slowest as well. */
const PACE = 100

const BUNDLED: readonly ContenderName[] = [
  'Lockstep',
  'plain INSERT',
  'lockstep.enqueue(), alone',
  'plain INSERT, alone',
  'pg-boss key_strict_fifo',
  'graphile-worker, a queue a key',
  'graphile-worker, a queue a key, local queue',
  'graphile-worker, unordered',
  'pg-transactional-outbox',
  'a query that locks as it reads',
  'the limit: rows read by id',
]
/** Their enqueue is a product's own way, in a transaction: what Lockstep's is compared with beside the plain INSERT. */
const PRODUCTS: readonly ContenderName[] = [
  'pg-boss key_strict_fifo',
  'graphile-worker, a queue a key',
  'graphile-worker, a queue a key, local queue',
  'graphile-worker, unordered',
  'pg-transactional-outbox',
]
/** PgQ is there for Debian's PostgreSQL 15: so is Lockstep, beside it. */
const ON_15: readonly ContenderName[] = ['Lockstep', 'PgQ', 'plain INSERT', 'the limit: rows read by id']
const ENQUEUE_BESIDE_PGQ: readonly ContenderName[] = ['Lockstep', 'PgQ', 'plain INSERT']

/** Ordered delivery over 1,000 keys beside what a user would take instead: in one run, on one machine, interleaved. */
export const outbox: Bench = {
  name: 'outbox',
  about: `enqueue, drain and latency over ${KEYS} keys, beside pg-boss, graphile-worker, pg-transactional-outbox, by hand and PgQ`,
  baselines: Object.fromEntries([...BUNDLED, 'PgQ' as const].map((name) => [name, contenders[name].settings])),
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const results: ResultRow[] = []
    const goals: Goal[] = []
    const limits: Limit[] = []
    const bundled = await playOn('bundled', BUNDLED, size, (text, share = 0) => reportProgress(text, share * 0.8))
    results.push(...bundled.rows)
    const inSql = limitInSql(bundled)
    goals.push(...goalsOf(bundled), inSql.goal)
    limits.push(inSql)
    if (pgqIsThere()) {
      const beside = await playOn('Debian 15', ON_15, size, (text, share = 0) =>
        reportProgress(text, 0.8 + share * 0.15),
      )
      results.push(...beside.rows)
      const own = [await limitBesidePgq(beside, size, reportProgress), limitOfDrain(beside, size)]
      goals.push(
        goal('drain: times PgQ, on PostgreSQL 15', beside.drained.ratio('Lockstep', 'PgQ', 'rate').median, '>=', 0.8),
        ...own.map((limit) => limit.goal),
      )
      limits.push(...own)
    } else {
      reportProgress('outbox: there is no PgQ (Debian: postgresql-15-pgq3): its row is left out')
    }
    return { results, goals, limits }
  },
}

interface Played {
  readonly rows: readonly ResultRow[]
  readonly enqueued: Rounds<ContenderName, Cost>
  readonly drained: Rounds<ContenderName, Cost>
  readonly deadEvents: number
}

function goalsOf({ enqueued, drained, deadEvents }: Played): Goal[] {
  const times = (other: ContenderName, least: number): Goal =>
    goal(`drain: times ${other}`, drained.ratio('Lockstep', other, 'rate').median, '>=', least)
  const enqueue = (other: ContenderName): number => enqueued.ratio('Lockstep', other, 'rate').median
  const fastest = PRODUCTS.toSorted((a, b) => enqueue(a) - enqueue(b))[0] as ContenderName
  return [
    times('pg-boss key_strict_fifo', 8),
    times('graphile-worker, unordered', 5),
    times('graphile-worker, a queue a key', 100),
    goal('enqueue: rate, in plain INSERTs', enqueue('plain INSERT'), '>=', 0.85),
    goal(`enqueue: times the fastest peer, ${fastest}`, enqueue(fastest), '>=', 1),
    goal('dead tuples among the events', deadEvents, '=', 0),
  ]
}

function limitInSql({ enqueued }: Played): Limit {
  const [alone, insert] = ['lockstep.enqueue(), alone', 'plain INSERT, alone'] as const
  return {
    what: 'enqueue in SQL, alone',
    unit: 'events/s',
    lockstep: enqueued.of(alone, 'rate').median,
    limit: enqueued.of(insert, 'rate').median,
    program: 'an INSERT: one message, one flush',
    goal: goal('enqueue in SQL: rate, in plain INSERTs', enqueued.ratio(alone, insert, 'rate').median, '>=', 0.8),
  }
}

/** The first run is the one whose rows are in the table. */
async function limitBesidePgq(first: Played, size: Size, reportProgress: ReportProgress): Promise<Limit> {
  const runs = [first.enqueued]
  while (runs.length < size.runsBesidePgq) {
    reportProgress(`outbox: enqueue beside PgQ, run ${runs.length + 1} of ${size.runsBesidePgq}`, 0.95)
    runs.push(await enqueueOn('Debian 15', ENQUEUE_BESIDE_PGQ, size))
  }
  const over = (name: ContenderName): number => median(runs.map((run) => run.of(name, 'rate').median))
  const times = runs.map((run) => run.ratio('Lockstep', 'PgQ', 'rate').median)
  const range = `${Math.min(...times).toFixed(2)} to ${Math.max(...times).toFixed(2)}`
  return {
    what: 'enqueue in a transaction, on PostgreSQL 15',
    unit: 'events/s',
    lockstep: over('Lockstep'),
    limit: over('plain INSERT'),
    program: 'BEGIN, an INSERT, COMMIT: three messages, one flush',
    goal: goal(`enqueue: times PgQ, median of ${runs.length} runs (${range})`, median(times), '>=', 1),
  }
}

function limitOfDrain({ drained }: Played, size: Size): Limit {
  // Of a turn, less than a tick of the kernel's account is not seen.
  const cpuUs = (name: ContenderName): number =>
    Math.max(drained.of(name, 'cpu').median, (TICK_MS * 1000) / size.drained)
  return {
    what: 'server time of an event in a drain, on PostgreSQL 15',
    unit: 'µs',
    lockstep: cpuUs('Lockstep'),
    limit: cpuUs('the limit: rows read by id'),
    program: 'a SELECT for each 1,000 events, by the primary key; no flush',
    goal: goal('drain: server time of an event, in that of PgQ', cpuUs('Lockstep') / cpuUs('PgQ'), '<=', 2),
  }
}

async function enqueueOn(
  version: 'bundled' | 'Debian 15',
  names: readonly ContenderName[],
  size: Size,
): Promise<Played['enqueued']> {
  const arena = await Arena.open(version)
  try {
    const seats = await Promise.all(names.map((name) => arena.seat(name)))
    return await playEnqueuing(arena, seats, size, () => undefined)
  } finally {
    await arena.close()
  }
}

/** Of the time that one server's part takes: where each phase begins, and how much of it there is. */
const PHASES = { enqueue: [0, 0.15], latency: [0.15, 0.15], drain: [0.3, 0.7] } as const

async function playOn(
  version: 'bundled' | 'Debian 15',
  names: readonly ContenderName[],
  size: Size,
  reportProgress: ReportProgress,
): Promise<Played> {
  const arena = await Arena.open(version)
  const told = (phase: keyof typeof PHASES) => (text: string, done: number, all: number) =>
    reportProgress(`outbox: ${phase}, ${text}`, PHASES[phase][0] + (PHASES[phase][1] * done) / all)
  try {
    reportProgress('outbox: setting up')
    const seats = await Promise.all(names.map((name) => arena.seat(name)))
    const delivering = seats.filter(({ name }) => contenders[name].enqueueOnly !== true)
    const enqueued = await playEnqueuing(arena, seats, size, told('enqueue'))
    const latencies = new Map<ContenderName, Latency>()
    // Before anything is left over that is slow to drain.
    for (const [place, seat] of delivering.entries()) {
      told('latency')(seat.name, place, delivering.length)
      latencies.set(seat.name, percentiles(await seat.latencies(PACE, size.latencyMs / 3, size.latencyMs)))
    }
    const drained = await playDraining(arena, delivering, size, told('drain'))
    const rows: ResultRow[] = []
    let deadEvents = Number.NaN
    const postgres = await arena.version()
    for (const seat of seats) {
      const dead = (await seat.askDatabase(DEAD_ROWS)) / seat.delivered
      if (seat.name === 'Lockstep') deadEvents = await seat.askDatabase(DEAD_EVENTS)
      rows.push({
        who: seat.name,
        PostgreSQL: postgres,
        order: contenders[seat.name].order,
        ...enqueueColumns(enqueued, seat.name),
        ...(latencies.has(seat.name) ? drainColumns(drained, seat.name, dead, latencies.get(seat.name)) : {}),
      })
    }
    return { rows, enqueued, drained, deadEvents }
  } finally {
    await arena.close()
  }
}

type Latency = ReturnType<typeof percentiles>
type Told = (text: string, done: number, all: number) => void

function allTurns(
  seats: readonly Seat[],
  play: (seat: Seat) => (round: number) => Promise<Turn<Cost>>,
): Record<ContenderName, (round: number) => Promise<Turn<Cost>>> {
  return Object.fromEntries(seats.map((seat) => [seat.name, play(seat)])) as ReturnType<typeof allTurns>
}

/** One event a transaction, on 8 connections. */
function playEnqueuing(arena: Arena, seats: readonly Seat[], size: Size, tell: Told): Promise<Played['enqueued']> {
  const spent = (): Promise<Spent> => arena.spent()
  const play = (seat: Seat) => () =>
    costing(spent, async () => {
      const { events, ms } = await seat.enqueue(size.enqueued)
      return { rate: (events / ms) * 1000, events }
    })
  return interleave(allTurns(seats, play), size.enqueueRounds, tell)
}

/** A backlog and one dispatcher, consumer or worker. The first round finds out how many a slow one gets. */
function playDraining(arena: Arena, seats: readonly Seat[], size: Size, tell: Told): Promise<Played['drained']> {
  const spent = (): Promise<Spent> => arena.spent()
  const play = (seat: Seat): ((round: number) => Promise<Turn<Cost>>) => {
    let [wanted, left] = [Math.min(size.drained, contenders[seat.name].most ?? Infinity), 0]
    return async (round) => {
      if (left < wanted) left += await seat.fill(wanted - left)
      return costing(spent, async () => {
        const { events, ms, delivered } = await seat.drain(wanted, round === 0 ? size.slowMs : size.slowMs * 2)
        left -= delivered
        // Whole thousands: in each of them every key is there once.
        if (round === 0) wanted = Math.min(wanted, Math.max(1000, Math.floor(delivered / 1000) * 1000))
        return { rate: (events / ms) * 1000, events: delivered }
      })
    }
  }
  return interleave(allTurns(seats, play), size.drainRounds, tell)
}

function enqueueColumns(enqueued: Played['enqueued'], name: ContenderName): ResultRow {
  const rate = enqueued.of(name, 'rate')
  return {
    'enqueue/s': Math.round(rate.median),
    'middle half': showSpread(rate),
    'WAL B': Math.round(enqueued.of(name, 'wal').median),
    'CPU µs': Math.round(enqueued.of(name, 'cpu').median),
  }
}

function drainColumns(drained: Played['drained'], name: ContenderName, dead: number, latency?: Latency): ResultRow {
  const rate = drained.of(name, 'rate')
  const short = (value: number): number => Number(value.toPrecision(3))
  return {
    'drain/s': Math.round(rate.median),
    'middle half of it': showSpread(rate),
    'WAL B of it': Math.round(drained.of(name, 'wal').median),
    'CPU µs of it': short(drained.of(name, 'cpu').median),
    'dead rows': short(dead),
    'p50 ms': short(latency?.p50 ?? Number.NaN),
    'p99 ms': short(latency?.p99 ?? Number.NaN),
  }
}
