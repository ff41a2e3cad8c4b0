import { setTimeout as sleep } from 'node:timers/promises'
import { Lockstep } from 'pg-lockstep'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, ReportProgress, RunSize } from './bench.ts'
import { type RequestProcess, startRequestProcess } from './harness/requestProcess.ts'
import { interleave, type Turn } from './harness/interleave.ts'
import { showSpread } from './harness/spread.ts'
import { CONNECTIONS, fill } from './outboxEvents.ts'
import type { Arrivals, ProcessRequest } from './processesProcess.ts'
import { openPool } from './harness/openPool.ts'

interface Size {
  readonly rounds: number
  readonly drained: number
  readonly leaseMs: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { rounds: 5, drained: 200_000, leaseMs: 2000 },
  quick: { rounds: 2, drained: 50_000, leaseMs: 700 },
  smoke: { rounds: 1, drained: 4000, leaseMs: 100 },
}

const COUNTS = [1, 2, 4] as const
export const CONTENDERS = 64
const PROCESS = new URL('processesProcess.ts', import.meta.url)
const MOST_TURNS = 100
/** As a dispatcher has it that says nothing. */
export const SHARDS = 8
/** So that each of many shards gets something. */
const SETTLING_EVENTS = 10_000
/** Until all have their share of the shards. */
const LONGEST_WAIT_MS = 60_000
/** The least share that a process gets, in what it would get if all got the same. */
const FAIR = 0.5

export type Measure = 'rate' | 'least'

/** Several processes in parallel: what they get done together, and how evenly. */
export const processes: Bench = {
  name: 'processes',
  about: 'dispatchers in 1, 2 and 4 processes, leases with contenders in 1, 2 and 4: rate and fairness',
  baselines: {},
  async run(thoroughness, reportProgress) {
    const size = SIZES[thoroughness]
    const server = await startPostgres({ durable: true, settings: { max_connections: '200', max_wal_size: '4GB' } })
    const pool = openPool(server.url(), CONNECTIONS)
    const lockstep = new Lockstep(pool) as unknown as Lockstep
    const groups = new Map<number, RequestProcess[]>()
    try {
      await lockstep.migrate()
      for (const count of COUNTS) groups.set(count, await startGroup(server.url(), count))
      const told = (what: string, from: number) => (text: string, done: number, all: number) =>
        reportProgress(`processes: ${what}, ${text}`, from + (0.5 * done) / all)
      const leases = await interleave(
        turns(groups, (group) => contend(group, size.leaseMs)),
        size.rounds,
        told('leases', 0),
      )
      await settle(groups, lockstep, reportProgress)
      const drains = await interleave(
        turns(groups, (group) => drain(group, groups, lockstep, size.drained)),
        size.rounds,
        told('dispatchers', 0.5),
      )
      const results: ResultRow[] = []
      const goals: Goal[] = []
      for (const [what, rounds] of Object.entries({ 'drain, events/s': drains, 'lease, hand-offs/s': leases })) {
        for (const count of COUNTS) {
          const name = nameOf(count)
          const ratio = rounds.ratio(name, nameOf(1), 'rate')
          results.push({
            what,
            processes: count,
            rate: Math.round(rounds.of(name, 'rate').median),
            'middle half': showSpread(rounds.of(name, 'rate')),
            'of one process': ratio.median,
            'least share': rounds.of(name, 'least').median,
          })
          if (count === 1) continue
          const least = rounds.of(name, 'least').median
          goals.push(goal(`${what.replace(/,.*/, '')}, ${name}: least share, in an equal one`, least, '>=', FAIR))
        }
      }
      return { results, goals }
    } finally {
      await Promise.all([...groups.values()].flat().map((each) => end(each)))
      await lockstep.close()
      await pool.end()
      await server.stop()
    }
  },
}

function nameOf(count: number): string {
  return count === 1 ? '1 process' : `${count} processes`
}

export function ask<Answer>(asked: RequestProcess, question: ProcessRequest): Promise<Answer> {
  return asked.ask<Answer>(question)
}

export async function end(asked: RequestProcess): Promise<void> {
  await ask(asked, { task: 'close' }).catch(() => undefined)
  await asked.end()
}

/** Each group has a dispatcher of its own name: all of them get every event. */
export function startGroup(url: string, count: number, shards = SHARDS): Promise<RequestProcess[]> {
  const args = [url, `with-${count}`, String(shards)]
  return Promise.all(Array.from({ length: count }, () => startRequestProcess(process.execPath, PROCESS, args)))
}

function turns(
  groups: ReadonlyMap<number, RequestProcess[]>,
  play: (group: readonly RequestProcess[]) => Promise<Turn<Measure>>,
): Record<string, () => Promise<Turn<Measure>>> {
  return Object.fromEntries([...groups].map(([count, group]) => [nameOf(count), () => play(group)]))
}

/** In an equal share. */
function leastOf(parts: readonly number[]): number {
  const sum = parts.reduce((total, part) => total + part, 0)
  return (Math.min(...parts) * parts.length) / sum
}

/** So many contenders for one lease, the same number of them in each process. */
export async function contend(group: readonly RequestProcess[], ms: number): Promise<Turn<Measure>> {
  const contenders = CONTENDERS / group.length
  for (let turn = 1; ; turn++) {
    const grants = await Promise.all(group.map((each) => ask<number>(each, { task: 'contend', contenders, ms })))
    const sum = grants.reduce((total, each) => total + each, 0)
    // On a busy machine a short turn can end before the first grant: there is nothing to divide then.
    if (sum > 0 || turn === MOST_TURNS) return { rate: (sum / (turn * ms)) * 1000, least: leastOf(grants) }
  }
}

/** Lets all deliver, and waits until each process has had something: then the shards are divided. */
export async function settle(
  groups: ReadonlyMap<number, RequestProcess[]>,
  lockstep: Lockstep,
  reportProgress: ReportProgress,
): Promise<void> {
  reportProgress('processes: dispatchers divide the shards', 0.5)
  const all = [...groups.values()].flat()
  await Promise.all(all.map((each) => ask(each, { task: 'deliver' })))
  for (const deadline = performance.now() + LONGEST_WAIT_MS; ; await sleep(200)) {
    await fill(lockstep, SETTLING_EVENTS)
    const heard = await Promise.all(all.map((each) => ask<Arrivals>(each, { task: 'heard' })))
    if (heard.every(({ events }) => events > 0)) break
    if (performance.now() > deadline) throw new Error('a process has got no shard')
  }
  await Promise.all([...groups.values()].map((group) => arrived(group)))
  await Promise.all(all.map((each) => ask(each, { task: 'gate', open: false })))
}

/** What a group has heard, once nothing more comes. */
async function arrived(group: readonly RequestProcess[], atLeast = 0): Promise<Arrivals[]> {
  let before = -1
  for (const deadline = performance.now() + LONGEST_WAIT_MS; ; await sleep(50)) {
    const heard = await Promise.all(group.map((each) => ask<Arrivals>(each, { task: 'heard' })))
    const sum = heard.reduce((total, { events }) => total + events, 0)
    if (sum >= atLeast && sum === before) return heard
    if (performance.now() > deadline) throw new Error(`${atLeast - sum} events have not come`)
    before = sum
  }
}

/** All groups get the events; one opens its gate against the clock, the others after it. */
export async function drain(
  group: readonly RequestProcess[],
  groups: ReadonlyMap<number, RequestProcess[]>,
  lockstep: Lockstep,
  count: number,
): Promise<Turn<Measure>> {
  const filled = await fill(lockstep, count)
  const own = await open(group, filled)
  for (const other of groups.values()) if (other !== group) await open(other, filled)
  return own
}

async function open(group: readonly RequestProcess[], filled: number): Promise<Turn<Measure>> {
  const before = await Promise.all(group.map((each) => ask<Arrivals>(each, { task: 'heard' })))
  const sum = before.reduce((total, { events }) => total + events, 0)
  const openedAt = performance.timeOrigin + performance.now()
  await Promise.all(group.map((each) => ask(each, { task: 'gate', open: true })))
  const after = await arrived(group, sum + filled)
  await Promise.all(group.map((each) => ask(each, { task: 'gate', open: false })))
  const parts = after.map(({ events }, place) => events - (before[place]?.events ?? 0))
  const ms = Math.max(...after.map(({ lastAt }) => lastAt)) - openedAt
  return { rate: (filled / ms) * 1000, least: leastOf(parts) }
}
