import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import { startProcess } from '../proofs/faults/killableProcess.ts'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import { startProxy } from 'pg-lockstep/testing'
import type { Bench, Limit, ReportProgress, RunSize } from './bench.ts'
import type { ContenderName } from './contenders/all.ts'
import { Arena, percentiles } from './contenders/arena.ts'
import { quantile } from './harness/spread.ts'
import { CREATE_OTHER, WRITE_OTHER } from './outbox.sql.ts'
import { CONNECTIONS, eventOf } from './outboxEvents.ts'
import { type Arrival, noteArrivals } from './outboxLatencyProcess.ts'
import { openPool } from './harness/openPool.ts'

/** How many events a second, beside the peers. */
const PACES = [1, 100, 1000] as const
const BESIDE: readonly ContenderName[] = [
  'Lockstep',
  'pg-boss key_strict_fifo',
  'graphile-worker, a queue a key',
  'graphile-worker, unordered',
  'the limit: a notification with the event',
]
const LIMIT: ContenderName = 'the limit: a notification with the event'

interface Size {
  readonly ms: number
  readonly warmUpMs: number
  readonly idleMs: number
  readonly rounds: number
  readonly besideMs: number
  readonly paces: readonly number[]
  /** Lockstep first. */
  readonly beside: readonly ContenderName[]
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { ms: 15_000, warmUpMs: 3000, idleMs: 15_000, rounds: 3, besideMs: 5000, paces: PACES, beside: BESIDE },
  quick: { ms: 5000, warmUpMs: 1500, idleMs: 5000, rounds: 1, besideMs: 2000, paces: PACES, beside: BESIDE },
  smoke: {
    ms: 300,
    warmUpMs: 100,
    idleMs: 500,
    rounds: 1,
    besideMs: 30,
    paces: [100],
    beside: [...BESIDE.slice(0, 2), LIMIT],
  },
}

const PER_SECOND = 1000
const MOST_P50_MS = 2
/** Of one event a second as many come as of ten in the time for others. */
const LONGER_AT_ONE = 10
/** Other applications' transactions while nothing is enqueued. */
const OTHERS_PER_SECOND = 200
/** Until a dispatcher has seen that nothing happens any more, and looks less often. */
const CALM_DOWN_MS = 1500
const LONGEST_WAIT_MS = 30_000
const DISPATCHER = new URL('outboxLatencyProcess.ts', import.meta.url)

/** From COMMIT to the sink, and what a dispatcher asks while there is nothing to do. */
export const outboxLatency: Bench = {
  name: 'outbox-latency',
  about: `COMMIT to sink at ${PER_SECOND} events a second, the dispatcher in another process; questions while nothing happens`,
  baselines: {},
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({ durable: true })
    const pool = openPool(server.url(), CONNECTIONS)
    const lockstep = new Lockstep(pool) as unknown as Lockstep
    try {
      await lockstep.migrate()
      await pool.query(CREATE_OTHER)

      reportProgress('outbox-latency: the dispatcher in another process')
      const apart = await measureApart(server.url(), lockstep, size)
      reportProgress('outbox-latency: the dispatcher in the same process')
      const together = await measureTogether(lockstep, size)
      reportProgress('outbox-latency: nothing happens')
      const perSecond = await askedWhileIdle(server.url(), lockstep, pool, size.idleMs)

      const goals: Goal[] = [
        goal('COMMIT to sink, dispatcher in another process: p50 ms', apart.p50, '<=', MOST_P50_MS),
        goal('COMMIT to sink, dispatcher in another process: p99 ms', apart.p99, '<=', 25),
        goal('an idle dispatcher on a busy server: questions a second', perSecond, '<=', 10),
      ]
      const beside = await measureBeside(size, reportProgress)
      return {
        results: [rowOf('in another process', apart), rowOf('in the same process', together), ...beside.rows],
        goals: [...goals, ...beside.goals],
        limits: beside.limits,
      }
    } finally {
      await lockstep.close()
      await pool.end()
      await server.stop()
    }
  },
}

/**
 * At each pace in turn, round by round. The middle round counts, of each quantile by itself. The peers notify in the transaction that enqueues: theirs
 * is on its way before COMMIT is answered.
 */
async function measureBeside(
  size: Size,
  reportProgress: ReportProgress,
): Promise<{ rows: ResultRow[]; goals: Goal[]; limits: Limit[] }> {
  const arena = await Arena.open('bundled')
  try {
    const seats = await Promise.all(size.beside.map((name) => arena.seat(name)))
    const rows: ResultRow[] = []
    const goals: Goal[] = []
    const limits: Limit[] = []
    for (const pace of size.paces) {
      const found = new Map<ContenderName, { p50: number; p99: number }[]>(size.beside.map((name) => [name, []]))
      const ms = size.besideMs * (pace === 1 ? LONGER_AT_ONE : 1)
      for (let round = 0; round < size.rounds; round++) {
        for (const seat of seats) {
          reportProgress(`outbox-latency: ${pace} a second, ${seat.name}`)
          found.get(seat.name)?.push(percentiles(await seat.latencies(pace, ms / 3, ms)))
        }
      }
      const middle = (name: ContenderName, which: 'p50' | 'p99'): number =>
        quantile(
          (found.get(name) ?? []).map((each) => each[which]),
          0.5,
        )
      for (const name of size.beside) {
        rows.push({
          dispatcher: `${name}, beside`,
          'events/s': pace,
          'p50 ms': middle(name, 'p50'),
          'p99 ms': middle(name, 'p99'),
        })
      }
      for (const which of ['p50', 'p99'] as const) {
        const fastest = Math.min(
          ...size.beside.filter((name) => name !== 'Lockstep' && name !== LIMIT).map((name) => middle(name, which)),
        )
        goals.push(
          goal(
            `${pace} a second: ${which} ms, the fastest peer ${fastest.toFixed(2)}`,
            middle('Lockstep', which),
            '<=',
            fastest,
          ),
        )
      }
      if (pace !== size.paces.at(-1)) continue
      const p50 = goal(`${pace} a second: p50 ms`, middle('Lockstep', 'p50'), '<=', MOST_P50_MS)
      goals.push(p50)
      limits.push({
        what: `from COMMIT to the sink of another process, ${pace} events/s, p50`,
        unit: 'ms',
        lockstep: p50.value,
        limit: middle(LIMIT, 'p50'),
        program:
          'an INSERT and NOTIFY in one message, one flush; 0: the notification, which carries the event, comes before the answer to COMMIT',
        goal: p50,
      })
    }
    return { rows, goals, limits }
  } finally {
    await arena.close()
  }
}

interface Latencies {
  readonly p50: number
  readonly p99: number
  readonly max: number
  readonly p50FromCommit: number
  readonly p99FromCommit: number
  readonly perSecond: number
}

function rowOf(dispatcher: string, measured: Latencies): ResultRow {
  return {
    dispatcher,
    'events/s': Math.round(measured.perSecond),
    'p50 ms': measured.p50,
    'p99 ms': measured.p99,
    'max ms': measured.max,
    'p50 ms from before COMMIT': measured.p50FromCommit,
    'p99 ms from before COMMIT': measured.p99FromCommit,
  }
}

async function measureApart(
  url: string,
  lockstep: Lockstep,
  size: { ms: number; warmUpMs: number },
): Promise<Latencies> {
  const dispatching = startProcess(DISPATCHER, [url, 'apart'])
  try {
    await once(dispatching.child, 'message')
    return await measure(lockstep, size, () => dispatching.ask<Arrival[]>('tell'))
  } finally {
    await dispatching.kill()
  }
}

/** For information: there a commit wakes the dispatcher. */
async function measureTogether(lockstep: Lockstep, size: { ms: number; warmUpMs: number }): Promise<Latencies> {
  const arrivals: Arrival[] = []
  const stop = new AbortController()
  const running = lockstep.outbox
    .dispatcher({ name: 'together', sink: noteArrivals(arrivals), retainMs: false })
    .run({ signal: stop.signal })
  try {
    return await measure(lockstep, size, () => Promise.resolve(arrivals.splice(0)))
  } finally {
    stop.abort()
    await running
  }
}

/** When an event's COMMIT was about to be sent, and when it was answered. */
interface Sent {
  readonly before: number
  readonly after: number
}

async function measure(
  lockstep: Lockstep,
  size: { ms: number; warmUpMs: number },
  tell: () => Promise<Arrival[]>,
): Promise<Latencies> {
  // By then it has all its shards.
  await arrivalsOf(await produce(lockstep, size.warmUpMs), tell)
  const startedAt = performance.now()
  const sent = await produce(lockstep, size.ms)
  const perSecond = (sent.size / (performance.now() - startedAt)) * 1000
  const arrived = await arrivalsOf(sent, tell)
  const since = (moment: keyof Sent): number[] =>
    [...sent].map(([number, each]) => (arrived.get(number) ?? Infinity) - each[moment]).toSorted((a, b) => a - b)
  const at = (sorted: readonly number[], share: number): number =>
    sorted[Math.floor(sorted.length * share)] ?? Number.NaN
  const [after, before] = [since('after'), since('before')]
  return {
    // The sink can be faster than the answer to COMMIT.
    p50: Math.max(0, at(after, 0.5)),
    p99: Math.max(0, at(after, 0.99)),
    max: after.at(-1) ?? Number.NaN,
    p50FromCommit: at(before, 0.5),
    p99FromCommit: at(before, 0.99),
    perSecond,
  }
}

/** Waits until all have come. */
async function arrivalsOf(
  sent: ReadonlyMap<number, unknown>,
  tell: () => Promise<Arrival[]>,
): Promise<Map<number, number>> {
  const arrived = new Map<number, number>()
  for (const deadline = performance.now() + LONGEST_WAIT_MS; ; await sleep(50)) {
    for (const [number, at] of await tell()) if (sent.has(number)) arrived.set(number, at)
    if (arrived.size === sent.size) return arrived
    if (performance.now() > deadline) throw new Error(`${sent.size - arrived.size} events have not come.`)
  }
}

let numbers = 0

/** One event a transaction, evenly paced, on all connections in turn. Who is late begins the next at once. */
async function produce(lockstep: Lockstep, ms: number): Promise<Map<number, Sent>> {
  const now = (): number => performance.timeOrigin + performance.now()
  const sent = new Map<number, Sent>()
  const startedAt = performance.now()
  const stepMs = 1000 / PER_SECOND
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async (_, connection) => {
      for (let dueMs = connection * stepMs; dueMs < ms; dueMs += CONNECTIONS * stepMs) {
        const waitMs = startedAt + dueMs - performance.now()
        if (waitMs > 0) await sleep(waitMs)
        const number = ++numbers
        const before = await lockstep.transaction({}, async (tx) => {
          await tx.enqueue({ ...eventOf(number), payload: { number } })
          return now()
        })
        sent.set(number, { before, after: now() })
      }
    }),
  )
  return sent
}

/** What a dispatcher sends and waits an answer for, counted on the wire, while others are busy on the same server. */
async function askedWhileIdle(url: string, lockstep: Lockstep, pool: pg.Pool, ms: number): Promise<number> {
  const proxy = await startProxy({ targetPort: Number(new URL(url).port) })
  const dispatching = startProcess(DISPATCHER, [proxy.url(url), 'idle'])
  const others = new AbortController()
  const busy = keepBusy(pool, others.signal)
  try {
    await once(dispatching.child, 'message')
    await arrivalsOf(await produce(lockstep, 100), () => dispatching.ask<Arrival[]>('tell'))
    await sleep(CALM_DOWN_MS)
    proxy.roundTrips = 0
    await sleep(ms)
    return (proxy.roundTrips / ms) * 1000
  } finally {
    others.abort()
    await busy
    await dispatching.kill()
    await proxy.close()
  }
}

async function keepBusy(pool: pg.Pool, signal: AbortSignal): Promise<void> {
  const startedAt = performance.now()
  for (let number = 0; !signal.aborted; number++) {
    await pool.query(WRITE_OTHER)
    const waitMs = startedAt + (number * 1000) / OTHERS_PER_SECOND - performance.now()
    if (waitMs > 0) await sleep(waitMs)
  }
}
