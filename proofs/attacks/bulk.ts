import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { Arrivals } from '../checkers/arrivals.ts'
import { startProcess } from '../faults/killableProcess.ts'
import type { Random } from '../seed.ts'
import { DRIVERS, type DriverName, type Lab } from './lab.ts'
import type { BulkOrder, BulkTimes } from './outbox/bulkProcess.ts'
import { Bystanders } from './outbox/bystanders.ts'
import { CREATE_BYSTANDERS } from './outbox/bystanders.sql.ts'
import { Drain } from './outbox/drain.ts'
import { attackInLab, type Findings, type ReportProgress } from './attack.ts'
import { FORGET_EVENTS, LOCK_EACH, WRITTEN } from './bulk.sql.ts'

interface Size {
  /** So many streams in one transaction. */
  readonly streams: number
  readonly rounds: number
  /** Of the rate with few streams. */
  readonly minRate: number
  /** What others may have waited beyond the time from flush to COMMIT. */
  readonly slackMs: number
  /** So many events in one transaction, to be delivered. */
  readonly events: number
}

const FEW = 1000
const BATCH = 500
const MOST_MB = 250
/** What a server is started with by default. */
const DEFAULTS = { max_connections: '100', max_locks_per_transaction: '64' }
const CONTROL_LOCKS = 100_000
const DRAIN_MS = 900_000

/**
 * Very much in one transaction, on a server with the default table of locks. A hundred thousand streams: at half the rate of few or
 * better, no other caller gets an error, and none waits for longer than from its flush to its COMMIT; a lock for each stream must be
 * found out. A million events: they are delivered in order, in batches and memory that are bounded.
 */
export const bulk = attackInLab<Size>({
  name: 'bulk',
  about: 'the outbox with 100,000 streams and 1,000,000 events in one transaction, on a server with default settings',
  full: { streams: 100_000, rounds: 3, minRate: 0.5, slackMs: 250, events: 1_000_000 },
  small: { streams: 10_000, rounds: 1, minRate: 0.2, slackMs: 2000, events: 30_000 },
  settings: DEFAULTS,
  async run(lab, size, reportProgress, random) {
    const writers = { pg: startWriter(lab, 'pg'), postgres: startWriter(lab, 'postgres') }
    try {
      const drained = await manyEvents(lab, size, writers.pg, reportProgress)
      await lab.admin.query(FORGET_EVENTS)
      const many = await manyStreams(lab, size, writers, reportProgress, random)
      return { results: [...many.results, ...drained.results], goals: [...many.goals, ...drained.goals] }
    } finally {
      await Promise.all(DRIVERS.map((driver) => writers[driver].kill()))
    }
  },
})

interface BulkWriter {
  readonly write: (order: BulkOrder) => Promise<BulkTimes>
  readonly kill: () => Promise<void>
}

function startWriter(lab: Lab, driver: DriverName): BulkWriter {
  const started = startProcess(new URL('outbox/bulkProcess.ts', import.meta.url), [driver, lab.url('direct')])
  return { write: (order) => started.ask({ ...order }), kill: () => started.kill() }
}

interface Rounds {
  events: number
  totalMs: number
  flushMs: number
  /** What others waited. */
  longestMs: number
  /** What they waited beyond the time from flush to COMMIT. */
  beyondMs: number
  failures: number
  misnumbered: number
}

async function manyStreams(
  lab: Lab,
  size: Size,
  writers: Readonly<Record<DriverName, BulkWriter>>,
  reportProgress: ReportProgress,
  random: Random,
): Promise<Findings> {
  await lab.admin.query(CREATE_BYSTANDERS)
  const bystanders = new Bystanders(lab, random)
  const results: ResultRow[] = []
  const goals: Goal[] = []
  try {
    for (const driver of DRIVERS) {
      const { few, many } = await play(lab, size, { driver, ...writers[driver] }, bystanders, reportProgress)
      const rate = ({ events, totalMs }: Rounds): number => (events / totalMs) * 1000
      const row = (keys: number, rounds: Rounds): ResultRow => ({
        what: `written by ${driver}`,
        streams: keys,
        events: rounds.events,
        'events/s': Math.round(rate(rounds)),
        'flush ms': Math.round(rounds.flushMs),
        'others waited ms': Math.round(rounds.longestMs),
      })
      results.push(row(FEW, few), row(size.streams, many))
      goals.push(
        goal(`${driver}: transactions that failed`, few.failures + many.failures, '=', 0),
        goal(`${driver}: events that are missing or misnumbered`, few.misnumbered + many.misnumbered, '=', 0),
        goal(`${driver}: the rate, of that with few streams`, rate(many) / rate(few), '>=', size.minRate),
        goal(
          `${driver}: others waited for longer than from flush to COMMIT, by ms`,
          Math.max(few.beyondMs, many.beyondMs),
          '<=',
          size.slackMs,
        ),
      )
    }
    for (const error of bystanders.errors.slice(0, 5)) reportProgress(`bulk: ${String(error)}`)
    goals.push(
      goal('errors of others', bystanders.errors.length, '=', 0),
      goal('events that others enqueued meanwhile', bystanders.enqueued, '>=', 100),
    )
    reportProgress('bulk: the control, a lock for each')
    bystanders.errors.splice(0)
    const refused = await lockEach(lab)
    goals.push(goal('control, a lock for each: refused for want of memory', refused ? 1 : 0, '=', 1))
    results.push({
      what: 'a lock for each stream',
      streams: CONTROL_LOCKS,
      'errors of others': bystanders.errors.length,
    })
  } finally {
    await bystanders.stop()
  }
  return { results, goals }
}

/** With few streams and with many, in turn. */
async function play(
  lab: Lab,
  size: Size,
  { driver, write }: BulkWriter & { readonly driver: DriverName },
  bystanders: Bystanders,
  reportProgress: ReportProgress,
): Promise<{ few: Rounds; many: Rounds }> {
  const none = { events: 0, totalMs: 0, flushMs: 0, longestMs: 0, beyondMs: 0, failures: 0, misnumbered: 0 }
  const [few, many]: [Rounds, Rounds] = [{ ...none }, { ...none }]
  await write({ topic: `${driver}-warm-up`, events: FEW, keys: FEW })
  for (let round = 1; round <= size.rounds; round++) {
    for (const [keys, rounds] of [
      [FEW, few],
      [size.streams, many],
    ] as const) {
      reportProgress(`bulk: ${driver}, ${round} of ${size.rounds}, ${size.streams} events over ${keys} keys`)
      const topic = `${driver}-${round}-${keys}`
      await sleep(100)
      bystanders.takeLongestMs()
      const { totalMs, flushMs, error } = await write({ topic, events: size.streams, keys })
      // Its waiters are served now.
      await sleep(100)
      const waitedMs = bystanders.takeLongestMs()
      if (error !== undefined) reportProgress(`bulk: ${error}`)
      const { rows } = await lab.admin.query<{ events: number; streams: number; misnumbered: number }>(WRITTEN, [
        topic,
        keys,
      ])
      const [written] = rows
      rounds.events += size.streams
      rounds.totalMs += totalMs
      rounds.flushMs = Math.max(rounds.flushMs, flushMs)
      rounds.longestMs = Math.max(rounds.longestMs, waitedMs)
      rounds.beyondMs = Math.max(rounds.beyondMs, waitedMs - flushMs)
      rounds.failures += error === undefined ? 0 : 1
      if (written?.events !== size.streams || written.streams !== keys) rounds.misnumbered++
      rounds.misnumbered += written?.misnumbered ?? 0
    }
  }
  return { few, many }
}

async function lockEach(lab: Lab): Promise<boolean> {
  const client = new pg.Client({ connectionString: lab.url('direct') })
  await client.connect()
  try {
    await client.query(LOCK_EACH, [CONTROL_LOCKS])
    return false
  } catch (error) {
    if ((error as { code?: string }).code !== '53200') throw error
    return true
  } finally {
    await client.end()
  }
}

async function manyEvents(
  lab: Lab,
  size: Size,
  { write }: BulkWriter,
  reportProgress: ReportProgress,
): Promise<Findings> {
  const arrivals = new Arrivals()
  const drain = new Drain(lab.url('direct'), BATCH, (arrival) => arrivals.see(arrival))
  try {
    await write({ topic: 'warm-up', events: 1, keys: 1 })
    while (drain.events === 0) await sleep(10)
    reportProgress(`bulk: ${size.events} events are written`)
    const { error } = await write({ topic: 'bulk', events: size.events, keys: FEW })
    if (error !== undefined) throw new Error(error)
    const startedAt = performance.now()
    while (drain.events < size.events + 1 && performance.now() - startedAt < DRAIN_MS) {
      reportProgress(`bulk: ${drain.events} of ${size.events} events`)
      await sleep(100)
    }
    const tookMs = performance.now() - startedAt
    const { events, outOfOrder, diverged, examples } = arrivals.report()
    for (const example of examples) reportProgress(`bulk: ${example}`)
    const delivered = {
      what: 'delivered',
      streams: FEW,
      events: size.events,
      'events/s': Math.round((size.events / tookMs) * 1000),
      'largest batch': drain.largestBatch,
      'memory MB': Math.round(drain.grownMb),
    }
    return {
      results: [delivered],
      goals: [
        goal('delivered: events that did not arrive', size.events + 1 - events, '=', 0),
        goal('delivered: out of order, with a gap, or with two ids', outOfOrder + diverged, '=', 0),
        goal('delivered: the largest batch', drain.largestBatch, '<=', BATCH),
        goal('delivered: memory, above the start, in MB', drain.grownMb, '<=', MOST_MB),
      ],
    }
  } finally {
    await drain.kill()
  }
}
