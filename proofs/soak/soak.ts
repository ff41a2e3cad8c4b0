/**
 * The soak: all modules at a steady rate for a long time, with faults at a steady rate, and no resource can grow.
 *
 * Three processes do the work (`../workload`). Two live through the whole run, one with each driver: their memory, handles and connections are
 * watched. The third is killed again and again and replaced. Sessions are ended at random, and the server restarts now and then. Everything happens
 * at the ticks at which samples are taken, so that each sample has the same faults before it.
 *
 * After the warm-up, a quarter of the run, no figure can have a trend (`trend.ts`): memory and handles of the processes, connections, the size of
 * Lockstep's tables and of the others, dead rows, WAL for each operation, p99. `SELECT 1` is measured beside: where that becomes slower as
 * well, the machine has changed, and p99 decides nothing.
 *
 * At the end everything has to be right: no lost write, every event's effect once, every second answer the first one.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { evidence, type Goal, goal, type ResultRow } from '../../tools/judge/report.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { quiet } from '../attacks/client.ts'
import { strikeSessions } from '../faults/sessions.ts'
import { quantile } from '../workload/latencies.ts'
import type { Leak } from '../workload/workload.ts'
import { Workers } from '../workload/workers.ts'
import { FILL_LEASE_HISTORY, FILL_LOCK_NAMES, LARGEST_TABLES, LOOK, NOTHING } from './soak.sql.ts'
import { judge, type Point, type Tolerance, trendOf } from './trend.ts'

export interface SoakOptions {
  readonly minutes: number
  readonly seed: number
  readonly leak?: Leak
}

/** What is known at one tick. */
export interface SoakSample {
  readonly atMs: number
  /** Of the two that live through the run. */
  readonly heapBytes: readonly number[]
  readonly rssBytes: readonly number[]
  readonly handles: readonly number[]
  readonly connections: number
  readonly schemaBytes: number
  readonly tableBytes: number
  readonly deadRows: number
  readonly walBytes: number
  readonly operations: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly nothingMs: number
}

export interface SoakFindings {
  readonly results: readonly ResultRow[]
  readonly goals: readonly Goal[]
  readonly samples: readonly SoakSample[]
  readonly faults: Readonly<Record<string, number>>
  readonly failed: Readonly<Record<string, number>>
  readonly largestTables: readonly Record<string, unknown>[]
}

const TICKS = 120
const LONGEST_TICK_MS = 30_000
const SHORTEST_TICK_MS = 500
const WARM_UP = 0.25
/** Of each part, in each process: 24 in a second together. */
const PER_SECOND = 1
const SHORT_PER_SECOND = 4
/** A machine that is busy with other things renews in time; a shard of a killed process is taken over within a tick. */
const TTL_MS = 10_000
const SHORT_TTL_MS = 3000
const MAX_RETAIN_MS = 120_000
const SESSIONS_AT_ONCE = 6
/** One of so many ticks. */
const STRIKE_EVERY = 2
const KILL_EVERY = 4
const RESTART_EVERY = 16
const NOTHINGS = 50
const MIB = 2 ** 20
/** Autovacuum looks at each table every ten seconds: a run of minutes has as many of its rounds as an hour with the default, a minute. */
const SETTINGS = { max_connections: '200', autovacuum_naptime: '10s', track_io_timing: 'off' }

const HEAP: Tolerance = { percent: 5, least: 20 * MIB }
const HANDLES: Tolerance = { percent: 10, least: 50 }
const CONNECTIONS: Tolerance = { percent: 10, least: 20 }
const SIZE: Tolerance = { percent: 10, least: 8 * MIB }
const DEAD_ROWS: Tolerance = { percent: 50, least: 5000 }
const WAL: Tolerance = { percent: 10, least: 1 }
const LATENCY: Tolerance = { percent: 50, least: 1 }
/** `SELECT 1` has become slower for certain by so much: then p99 decides nothing. */
const MACHINE_PERCENT = 10

/** Runs it. `reportProgress` gets a line now and then. */
export async function soak(options: SoakOptions, reportProgress: (text: string) => void): Promise<SoakFindings> {
  await using server = await startPostgres({ settings: SETTINGS })
  const admin = quiet(new pg.Pool({ connectionString: server.url(), application_name: 'soak', max: 2 }))
  const lockstep = new Lockstep(admin)
  await lockstep.migrate()
  const durationMs = options.minutes * 60_000
  const isShort = options.minutes < 1
  const tickMs = Math.min(LONGEST_TICK_MS, Math.max(SHORTEST_TICK_MS, durationMs / TICKS))
  const workers = new Workers(admin, {
    url: server.url(),
    seed: options.seed,
    perSecond: isShort ? SHORT_PER_SECOND : PER_SECOND,
    ttlMs: isShort ? SHORT_TTL_MS : TTL_MS,
    retainMs: Math.min(MAX_RETAIN_MS, Math.max(1000, durationMs / 20)),
    ...(options.leak === undefined ? {} : { leak: options.leak }),
  })
  const samples: SoakSample[] = []
  const faults = { 'sessions ended': 0, 'processes killed': 0, 'server restarts': 0 }
  try {
    await workers.prepare()
    await admin.query(FILL_LEASE_HISTORY)
    await admin.query(FILL_LOCK_NAMES)
    await Promise.all([
      workers.start({ name: 'worker-1', driver: 'pg' }),
      workers.start({ name: 'worker-2', driver: 'postgres' }),
      workers.start({ name: 'worker-3', driver: 'pg' }),
    ])
    let isReplacing = false
    let replacing = Promise.resolve()
    const startedAt = performance.now()
    // However busy the machine, each fault has struck once.
    for (let tick = 1; performance.now() < startedAt + durationMs || tick <= RESTART_EVERY / 2; tick++) {
      const late = performance.now() - startedAt - tick * tickMs
      // Ticks that a busy machine has missed are not made up for: the run would be as much longer.
      if (late < 0) await sleep(-late)
      samples.push(await takeSample(admin, workers, performance.now() - startedAt))
      reportProgress(`soak: ${Math.round((performance.now() - startedAt) / 1000)} s, ${workers.ended} operations`)
      if (tick % STRIKE_EVERY === 0) {
        const which = { application: 'worker%', most: SESSIONS_AT_ONCE }
        faults['sessions ended'] += await strikeSessions(admin, 'terminate', which)
      }
      if (tick % KILL_EVERY === 0) {
        // A machine that is busy starts a process in more than a tick.
        if (!isReplacing) {
          isReplacing = true
          replacing = workers.replace('worker-3').finally(() => (isReplacing = false))
          faults['processes killed']++
        }
      }
      if (tick % RESTART_EVERY === RESTART_EVERY / 2) {
        await server.restart('fast')
        faults['server restarts']++
      }
    }
    await replacing
    reportProgress('soak: waiting for the last effects')
    const broken = await workers.finish()
    const { rows: largestTables } = await admin.query<Record<string, unknown>>(LARGEST_TABLES)
    return {
      ...verdict(samples, workers, broken),
      samples,
      faults,
      failed: workers.failed,
      largestTables,
      results: [{ ...workers.endedByPart, 'not begun': workers.skipped, ...faults }],
    }
  } finally {
    await workers.kill()
    await lockstep.close()
    await admin.end()
  }
}

async function takeSample(admin: pg.Pool, workers: Workers, atMs: number): Promise<SoakSample> {
  const [first, second, third] = await Promise.all(
    ['worker-1', 'worker-2', 'worker-3'].map((name) => workers.sampleIfThere(name)),
  )
  const { rows } =
    await admin.query<Pick<SoakSample, 'connections' | 'schemaBytes' | 'tableBytes' | 'deadRows' | 'walBytes'>>(LOOK)
  const nothings: number[] = []
  for (let n = 0; n < NOTHINGS; n++) {
    const askedAt = performance.now()
    await admin.query(NOTHING)
    nothings.push(performance.now() - askedAt)
  }
  const lasting = [first, second].filter((each) => each !== undefined)
  const latencies = [first, second, third].flatMap((each) => Object.values(each?.latenciesMs ?? {}).flat())
  return {
    atMs,
    heapBytes: lasting.map(({ heapBytes }) => heapBytes),
    rssBytes: lasting.map(({ rssBytes }) => rssBytes),
    handles: lasting.map(({ handles }) => handles),
    ...(rows[0] as (typeof rows)[number]),
    operations: latencies.length,
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
    nothingMs: quantile(nothings, 0.5),
  }
}

function verdict(samples: readonly SoakSample[], workers: Workers, broken: readonly string[]): { goals: Goal[] } {
  const [first] = samples
  const endedAt = samples.at(-1)?.atMs ?? 0
  const judged = samples.filter(({ atMs }) => atMs > endedAt * WARM_UP)
  const series = (of: (sample: SoakSample, place: number) => number | undefined): Point[] =>
    judged.flatMap((sample, place) => {
      const value = of(sample, place)
      return value === undefined || !Number.isFinite(value) ? [] : [{ atMs: sample.atMs, value }]
    })
  const nothing = trendOf(series(({ nothingMs }) => nothingMs))
  const isMachineSlower = nothing !== undefined && nothing.atLeast > (nothing.median * MACHINE_PERCENT) / 100
  const wal = series((sample, place) => {
    const before = judged[place - 1]
    return before === undefined ? undefined : (sample.walBytes - before.walBytes) / sample.operations
  })
  for (const each of broken) process.stderr.write(`soak: ${each}\n`)
  return {
    goals: [
      goal('broken promises', broken.length, '=', 0),
      evidence('parts that did no work', workers.idleParts, '=', 0),
      evidence('samples', first === undefined ? 0 : judged.length, '>=', TICKS / 2),
      ...['pg', 'postgres.js'].flatMap((driver, place) => [
        ...judge(
          `memory of the process, ${driver}`,
          series(({ heapBytes }) => heapBytes[place]),
          HEAP,
        ),
        ...judge(
          `handles, ${driver}`,
          series(({ handles }) => handles[place]),
          HANDLES,
        ),
      ]),
      ...judge(
        'connections',
        series(({ connections }) => connections),
        CONNECTIONS,
      ),
      ...judge(
        "size of Lockstep's tables",
        series(({ schemaBytes }) => schemaBytes),
        SIZE,
      ),
      ...judge(
        'size of the other tables',
        series(({ tableBytes }) => tableBytes),
        SIZE,
      ),
      ...judge(
        'dead rows',
        series(({ deadRows }) => deadRows),
        DEAD_ROWS,
      ),
      ...judge('WAL for each operation', wal, WAL),
      ...judge(
        'p99',
        series(({ p99Ms }) => p99Ms),
        LATENCY,
        isMachineSlower,
      ),
    ],
  }
}
