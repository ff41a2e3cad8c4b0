import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import { startProxy } from 'pg-lockstep/testing'
import { startProcess } from '../proofs/faults/killableProcess.ts'
import { goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, ReportProgress, RunSize } from './bench.ts'
import { percentiles } from './contenders/arena.ts'
import { interleave } from './harness/interleave.ts'
import { CONNECTIONS, eventOf, onAllConnections } from './outboxEvents.ts'
import { openPool } from './harness/openPool.ts'
import { ENQUEUE, ENQUEUE_AND_RING, LISTEN_FOR } from './idle.sql.ts'
import type { Arrival } from './outboxLatencyProcess.ts'

/** `restMs`: a dispatcher with a ttl of a second lets its shards rest in less than that. */
interface Size {
  readonly idleMs: number
  readonly wakeUps: number
  readonly restMs: number
  /** How long events come at each pace. */
  readonly pacedMs: number
  readonly bellRounds: number
  readonly bellEnqueued: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { idleMs: 130_000, wakeUps: 40, restMs: 6000, pacedMs: 20_000, bellRounds: 40, bellEnqueued: 1500 },
  quick: { idleMs: 10_000, wakeUps: 1, restMs: 6000, pacedMs: 5000, bellRounds: 8, bellEnqueued: 800 },
  smoke: { idleMs: 500, wakeUps: 1, restMs: 0, pacedMs: 200, bellRounds: 1, bellEnqueued: 24 },
}

/** Events a second, and how many of them are in a transaction. */
const PACES = [
  { perSecond: 1, each: 1 },
  { perSecond: 1000, each: 1 },
  { perSecond: 20_000, each: 200 },
] as const

const DISPATCHER = new URL('outboxLatencyProcess.ts', import.meta.url)
const LONGEST_WAIT_MS = 90_000
/** Longer than a writer believes that no dispatcher listens. */
const BELIEVED_MS = 1100
let numbers = 0

/** What a dispatcher that has nothing to do sends, and how long it takes to wake it from its rest. */
export const idle: Bench = {
  name: 'idle',
  about:
    'messages a minute of a dispatcher, idle and at a pace; from COMMIT to the sink of one whose shards rest; what the bell costs writers',
  baselines: {},
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({ durable: true })
    const pool = openPool(server.url(), CONNECTIONS)
    const lockstep = new Lockstep(pool) as unknown as Lockstep
    try {
      await lockstep.migrate()
      const sent: Record<string, number> = {}
      for (const [name, how, sleepAfterMs] of [
        ['idle', 'rests', ''],
        ['asleep', 'asleep', '1000'],
      ] as const) {
        const proxy = await startProxy({ targetPort: Number(new URL(server.url()).port) })
        const dispatching = startProcess(DISPATCHER, [proxy.url(server.url()), name, '1000', sleepAfterMs])
        try {
          await once(dispatching.child, 'message')
          await wakeUp(
            () => dispatching.ask<Arrival[]>('tell'),
            (number) => write(lockstep, number),
          )
          reportProgress(`idle: until it ${how}`)
          // One that sleeps looks once more before it does, a second after its shards began to rest.
          await sleep(size.restMs * (sleepAfterMs === '' ? 1 : 2))
          reportProgress(`idle: ${how}`)
          proxy.roundTrips = 0
          await sleep(size.idleMs)
          sent[how] = (proxy.roundTrips / size.idleMs) * 60_000
        } finally {
          await dispatching.kill()
          await proxy.close()
        }
      }
      const paced: ResultRow[] = []
      for (const pace of PACES) {
        reportProgress(`idle: ${pace.perSecond} events a second`)
        paced.push({
          dispatcher: `${pace.perSecond} events/s`,
          'messages/min': Math.round(await messagesAtPace(server.url(), lockstep, pace, size.pacedMs)),
        })
      }
      reportProgress('idle: what the bell costs')
      const bell = await costOfBell(lockstep, pool, size, reportProgress)
      const inside = await costOfRingInside(pool, size, reportProgress)
      const dispatching = startProcess(DISPATCHER, [server.url(), 'woken', '1000', ''])
      const woken: Record<'library' | 'sql', number[]> = { library: [], sql: [] }
      try {
        await once(dispatching.child, 'message')
        const tell = (): Promise<Arrival[]> => dispatching.ask<Arrival[]>('tell')
        await wakeUp(tell, (number) => write(lockstep, number))
        for (let round = 0; round < size.wakeUps; round++) {
          reportProgress(`idle: woken ${round} of ${size.wakeUps} times`, round / size.wakeUps)
          await sleep(size.restMs)
          woken.library.push(await wakeUp(tell, (number) => write(lockstep, number)))
          await sleep(size.restMs)
          woken.sql.push(await wakeUp(tell, (number) => writeInSql(pool, number)))
        }
      } finally {
        await dispatching.kill()
      }
      const results: ResultRow[] = [
        { dispatcher: 'its shards rest', 'messages/min': sent['rests'] ?? Number.NaN },
        { dispatcher: 'asleep (sleepAfterMs)', 'messages/min': sent['asleep'] ?? Number.NaN },
        ...paced,
        { dispatcher: 'listens: enqueued/s by others, in the rate without', ratio: Number(bell.toPrecision(3)) },
        {
          dispatcher: 'listens: enqueued/s by SQL that rings inside its transaction, in the rate without',
          ratio: Number(inside.toPrecision(3)),
        },
        { dispatcher: 'woken by another process', ...rounded(percentiles(woken.library)) },
        { dispatcher: 'woken by SQL that rings', ...rounded(percentiles(woken.sql)) },
      ]
      return {
        results,
        goals: [
          goal('messages a minute of an idle dispatcher', sent['rests'] ?? Number.NaN, '<=', 1),
          goal('messages a minute of one that is asleep', sent['asleep'] ?? Number.NaN, '=', 0),
          goal('enqueue while a dispatcher listens, in the rate without', bell, '>=', 0.98),
          goal('woken by another process: p50 ms', percentiles(woken.library).p50, '<=', 10),
          goal('woken by SQL that rings: p50 ms', percentiles(woken.sql).p50, '<=', 10),
        ],
      }
    } finally {
      await lockstep.close()
      await pool.end()
      await server.stop()
    }
  },
}

/** What a dispatcher in another process sends while events come at an even pace. */
async function messagesAtPace(
  url: string,
  lockstep: Lockstep,
  { perSecond, each }: { perSecond: number; each: number },
  ms: number,
): Promise<number> {
  const proxy = await startProxy({ targetPort: Number(new URL(url).port) })
  const dispatching = startProcess(DISPATCHER, [proxy.url(url), `paced-${perSecond}`])
  const tell = (): Promise<Arrival[]> => dispatching.ask<Arrival[]>('tell')
  try {
    await once(dispatching.child, 'message')
    await wakeUp(tell, (number) => write(lockstep, number))
    const startedAt = performance.now()
    proxy.roundTrips = 0
    const stepMs = (1000 * each) / perSecond
    for (let dueMs = 0; dueMs < ms; dueMs += stepMs) {
      const waitMs = startedAt + dueMs - performance.now()
      if (waitMs > 0) await sleep(waitMs)
      const first = (numbers += each) - each
      await lockstep.transaction({}, (tx) =>
        tx.enqueueMany(
          Array.from({ length: each }, (_, place) => ({
            topic: 'trades',
            key: `p${place % 50}`,
            payload: { number: first + place + 1 },
          })),
        ),
      )
    }
    const trips = proxy.roundTrips
    const perMinute = (trips / (performance.now() - startedAt)) * 60_000
    // The next bench does not begin beside a backlog.
    await wakeUp(tell, (number) => write(lockstep, number))
    return perMinute
  } finally {
    await dispatching.kill()
    await proxy.close()
  }
}

/**
 * The rate of transactions that enqueue one event, with a row that says that a dispatcher listens, in the rate without. No dispatcher runs: what
 * it would take of the machine is no cost of the bell, and one that is busy declines the bell.
 */
async function costOfBell(
  lockstep: Lockstep,
  pool: pg.Pool,
  { bellRounds, bellEnqueued }: Size,
  reportProgress: ReportProgress,
): Promise<number> {
  const enqueue = async (listening: boolean): Promise<{ rate: number }> => {
    await pool.query(LISTEN_FOR[listening ? 'an hour' : 'nothing'])
    // For so long a writer believes the last answer.
    await sleep(BELIEVED_MS)
    await write(lockstep, ++numbers)
    const startedAt = performance.now()
    await onAllConnections((number) => lockstep.transaction({}, (tx) => tx.enqueue(eventOf(number))))(bellEnqueued)
    return { rate: (bellEnqueued / (performance.now() - startedAt)) * 1000 }
  }
  const rounds = await interleave(
    { rung: () => enqueue(true), silent: () => enqueue(false) },
    bellRounds,
    (text, done, all) => reportProgress(`idle: the bell, ${text}`, done / all),
  )
  await pool.query(LISTEN_FOR.nothing)
  return rounds.ratio('rung', 'silent', 'rate').median
}

/**
 * The rate of statements that enqueue one event and ring in the same transaction, in the rate of those that do not ring: PostgreSQL lets transactions
 * with a NOTIFY commit one after the other.
 */
async function costOfRingInside(
  pool: pg.Pool,
  { bellRounds, bellEnqueued }: Size,
  reportProgress: ReportProgress,
): Promise<number> {
  await pool.query(LISTEN_FOR['an hour'])
  const enqueue = async (statement: string): Promise<{ rate: number }> => {
    const startedAt = performance.now()
    await onAllConnections((number) => {
      const { key, payload } = eventOf(number)
      return pool.query(statement, [key, JSON.stringify(payload)])
    })(bellEnqueued)
    return { rate: (bellEnqueued / (performance.now() - startedAt)) * 1000 }
  }
  const rounds = await interleave(
    { inside: () => enqueue(ENQUEUE_AND_RING), silent: () => enqueue(ENQUEUE) },
    Math.ceil(bellRounds / 4),
    (text, done, all) => reportProgress(`idle: a ring inside, ${text}`, done / all),
  )
  await pool.query(LISTEN_FOR.nothing)
  return rounds.ratio('inside', 'silent', 'rate').median
}

function rounded({ p50, p99 }: { p50: number; p99: number }): ResultRow {
  return { 'p50 ms': Number(p50.toPrecision(3)), 'p99 ms': Number(p99.toPrecision(3)) }
}

const write = (lockstep: Lockstep, number: number): Promise<void> =>
  lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'trades', key: `p${number % 7}`, payload: { number } }))

const writeInSql = async (pool: pg.Pool, number: number): Promise<void> =>
  void (await pool.query(ENQUEUE_AND_RING, [`p${number % 7}`, JSON.stringify({ number })]))

/** From the answer to COMMIT until it was in the sink, in milliseconds. */
async function wakeUp(tell: () => Promise<Arrival[]>, commit: (number: number) => Promise<void>): Promise<number> {
  const number = ++numbers
  await commit(number)
  const at = performance.timeOrigin + performance.now()
  for (const deadline = performance.now() + LONGEST_WAIT_MS; performance.now() < deadline; await sleep(20)) {
    const arrival = (await tell()).find(([arrived]) => arrived === number)
    if (arrival !== undefined) return Math.max(0, arrival[1] - at)
  }
  throw new Error(`Event ${number} has not come.`)
}
