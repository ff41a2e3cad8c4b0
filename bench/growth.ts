import { Lockstep } from 'pg-lockstep'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, ReportProgress, RunSize } from './bench.ts'
import { openPool } from './harness/openPool.ts'
import { median } from './harness/spread.ts'
import { CHECKPOINT, dropSchema, vacuum } from './outbox.sql.ts'
import { CONNECTIONS, eventOf, fill, KEYS, onAllConnections } from './outboxEvents.ts'
import { ask, contend, CONTENDERS, drain, end, settle, SHARDS, startGroup } from './processes.ts'

interface Size {
  readonly rounds: number
  /** Of one event each, at most. */
  readonly singles: number
  readonly events: readonly number[]
  readonly keys: readonly number[]
  /** With each number of keys. */
  readonly eventsOfKeys: number
  readonly processes: readonly number[]
  readonly drainedByProcesses: number
  readonly turnMs: number
}

const powers = (base: number, from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, step) => base ** (from + step))

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: {
    rounds: 5,
    singles: 2000,
    events: powers(10, 1, 7),
    keys: powers(10, 1, 6),
    eventsOfKeys: 1_000_000,
    processes: powers(2, 0, 6),
    drainedByProcesses: 100_000,
    turnMs: 2000,
  },
  quick: {
    rounds: 2,
    singles: 300,
    events: powers(10, 1, 5),
    keys: powers(10, 1, 4),
    eventsOfKeys: 20_000,
    processes: powers(2, 0, 2),
    drainedByProcesses: 20_000,
    turnMs: 500,
  },
  smoke: {
    rounds: 1,
    singles: 20,
    events: powers(10, 1, 2),
    keys: powers(10, 1, 2),
    eventsOfKeys: 1000,
    processes: powers(2, 0, 1),
    drainedByProcesses: 2000,
    turnMs: 100,
  },
}

/** What the cost with the most events is compared with: with fewer, starting a dispatcher is most of a drain. */
const COMPARED_WITH = 10_000
const AT_MOST = 1.2

/** How the cost of one event grows with the number of events, of keys and of processes. */
export const growth: Bench = {
  name: 'growth',
  about: 'how cost grows: 10 to 10,000,000 events, 10 to 1,000,000 keys, 1 to 64 processes, as charts',
  baselines: {},
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({ durable: true, settings: { max_connections: '1000', max_wal_size: '4GB' } })
    const results: ResultRow[] = []
    try {
      const cells = [
        ...size.events.map((events) => ({ grows: 'events', to: events, events, keys: KEYS })),
        ...size.keys.map((keys) => ({ grows: 'keys', to: keys, events: size.eventsOfKeys, keys })),
      ]
      for (const [place, { grows, to, ...cell }] of cells.entries()) {
        reportProgress(`growth: ${to} ${grows}`, (0.7 * place) / cells.length)
        const { enqueueUs, drainUs } = await measureCell(server.url(), cell, size)
        results.push({ 'what grows': grows, to, 'enqueue µs': enqueueUs, 'drain µs': drainUs, 'hand-off µs': '' })
      }
      results.push(...(await measureProcesses(server.url(), size, reportProgress)))
      return { results, goals: goalsOf(results, size) }
    } finally {
      await server.stop()
    }
  },
}

function goalsOf(results: readonly ResultRow[], { events }: Size): Goal[] {
  const most = events.at(-1) ?? 0
  const of = (to: number, column: string): number =>
    Number(results.find((row) => row['what grows'] === 'events' && row['to'] === to)?.[column])
  if (most <= COMPARED_WITH) return []
  return ['enqueue', 'drain'].map((what) => {
    const ratio = of(most, `${what} µs`) / of(COMPARED_WITH, `${what} µs`)
    return goal(`${what} with ${most} events, in those with ${COMPARED_WITH}`, ratio, '<=', AT_MOST)
  })
}

/** In a schema of its own, which is dropped: ten million events need room. */
async function measureCell(
  url: string,
  { events, keys }: { events: number; keys: number },
  size: Size,
): Promise<{ enqueueUs: number; drainUs: number }> {
  const pool = openPool(url, CONNECTIONS)
  const schema = 'growth'
  const lockstep = new Lockstep(pool, { schema }) as unknown as Lockstep
  try {
    await lockstep.migrate()
    const singles = Math.min(events, size.singles)
    if (events > singles) await fill(lockstep, events - singles, keys)
    await pool.query(vacuum(schema))
    await pool.query(CHECKPOINT)
    const enqueueUs = await medianOf(size.rounds, async () => {
      const startedAt = performance.now()
      await onAllConnections((number) => lockstep.transaction({}, (tx) => tx.enqueue(eventOf(number, keys))))(singles)
      return ((performance.now() - startedAt) * 1000) / singles
    })
    let names = 0
    const drainUs = await medianOf(size.rounds, async () => {
      const ms = await drainWhole(lockstep, events, `growth-${++names}`)
      return (ms * 1000) / events
    })
    return { enqueueUs, drainUs }
  } finally {
    await lockstep.close()
    await pool.query(dropSchema(schema))
    await pool.end()
  }
}

async function medianOf(rounds: number, measure: () => Promise<number>): Promise<number> {
  // To warm up.
  await measure()
  const values: number[] = []
  for (let round = 0; round < rounds; round++) values.push(await measure())
  return median(values)
}

/** From the moment in which a dispatcher of a new name is started: taking shards is a part of it. */
async function drainWhole(lockstep: Lockstep, upTo: number, name: string): Promise<number> {
  const stop = new AbortController()
  let [events, endedAt] = [0, 0]
  const startedAt = performance.now()
  await lockstep.outbox
    .dispatcher({
      name,
      retainMs: false,
      sink(batch) {
        events += batch.length
        if (endedAt > 0 || events < upTo) return
        endedAt = performance.now()
        stop.abort()
      },
    })
    .run({ signal: stop.signal })
  return endedAt - startedAt
}

/** One group after the other: with all of them at once there would be 127 processes. Each has as many callers in all. */
async function measureProcesses(url: string, size: Size, reportProgress: ReportProgress): Promise<ResultRow[]> {
  const pool = openPool(url, CONNECTIONS)
  const lockstep = new Lockstep(pool) as unknown as Lockstep
  const rows: ResultRow[] = []
  try {
    await lockstep.migrate()
    for (const [place, count] of size.processes.entries()) {
      reportProgress(`growth: ${count} processes`, 0.7 + (0.3 * place) / size.processes.length)
      const group = await startGroup(url, count, Math.max(SHARDS, count))
      const groups = new Map([[count, group]])
      const callers = CONTENDERS / count
      try {
        const handOffUs = await medianOf(size.rounds, async () => 1e6 / (await contend(group, size.turnMs)).rate)
        const enqueueUs = await medianOf(size.rounds, async () => {
          const question = { task: 'enqueue', callers, ms: size.turnMs } as const
          const startedAt = performance.now()
          const committed = await Promise.all(group.map((each) => ask<number>(each, question)))
          return ((performance.now() - startedAt) * 1000) / committed.reduce((sum, each) => sum + each, 0)
        })
        await settle(groups, lockstep, () => undefined)
        const drainUs = await medianOf(
          size.rounds,
          async () => 1e6 / (await drain(group, groups, lockstep, size.drainedByProcesses)).rate,
        )
        rows.push({
          'what grows': 'processes',
          to: count,
          'enqueue µs': enqueueUs,
          'drain µs': drainUs,
          'hand-off µs': handOffUs,
        })
      } finally {
        await Promise.all(group.map((each) => end(each)))
      }
    }
    return rows
  } finally {
    await lockstep.close()
    await pool.end()
  }
}
