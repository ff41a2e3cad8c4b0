import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { goal, type ResultRow } from '../tools/judge/report.ts'
import type { Measured, ReportProgress, RunSize } from './bench.ts'
import { Arena, type ArenaVersion, debian15IsThere, percentiles, type Seat } from './contenders/arena.ts'
import { NEXT_SEGMENT, READ_COST } from './outbox.sql.ts'

interface Size {
  /** How long the transaction stays open, and at which pace events come meanwhile. */
  readonly ms: number
  readonly perSecond: number
  /** How many segments are left meanwhile: there are slots for eight. */
  readonly segments: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { ms: 600_000, perSecond: 100, segments: 6 },
  quick: { ms: 30_000, perSecond: 200, segments: 6 },
  smoke: { ms: 1000, perSecond: 500, segments: 2 },
}

/** What the other session holds. A transaction id is in every snapshot from then on; both keep VACUUM from cleaning up. */
const HOLDS = ['transaction id', 'snapshot'] as const
type Hold = (typeof HOLDS)[number]

/** Beginning and end are so large a part of the whole each. */
const PART = 0.1
const WARM_UP_MS = 500

/** A stretch of the run: what reading cost, and how long events were on their way. */
interface Stretch {
  readonly readMs: number
  readonly p50: number
  readonly p99: number
}

/**
 * Delivery while a session holds a transaction id or an old snapshot. Nothing that was delivered since may be read again for its sake,
 * neither in the current segment nor in those that were left. One dispatcher runs all the time, because its sessions keep the plans
 * that they made while there were no events. The cases of one version run at once, each on a server of its own: the end is compared
 * with the beginning, and they slow each other down by the same at both.
 */
export async function heldHorizon(thoroughness: RunSize, reportProgress: ReportProgress): Promise<Measured> {
  const size = SIZES[thoroughness]
  const isSmoke = thoroughness === 'smoke'
  const versions: ArenaVersion[] = !isSmoke && debian15IsThere() ? ['bundled', 'Debian 15'] : ['bundled']
  const behind = isSmoke ? [size.segments] : [0, size.segments]
  const cases = HOLDS.flatMap((hold) => behind.map((segments) => ({ hold, segments })))
  const all: Measured[] = []
  for (const version of versions) {
    reportProgress(`outbox-horizon: a transaction id and a snapshot held for ${size.ms / 1000} s, ${version}`)
    all.push(...(await Promise.all(cases.map((each) => holdOn(version, size, each)))))
  }
  return { results: all.flatMap(({ results }) => results), goals: all.flatMap(({ goals }) => goals) }
}

interface Case {
  readonly hold: Hold
  readonly segments: number
}

async function holdOn(version: ArenaVersion, size: Size, { hold, segments }: Case): Promise<Measured> {
  const { first, last } = await stretches(version, size, { hold, segments })
  const where = `${version}, ${segments === 0 ? 'one segment' : `${segments} segments behind`}`
  const result: ResultRow = {
    who: 'Lockstep',
    what: `${hold} held, ${where}`,
    'read ms, first': first.readMs,
    'read ms, last': last.readMs,
    'p50 ms, first': first.p50,
    'p50 ms, last': last.p50,
    'p99 ms, first': first.p99,
    'p99 ms, last': last.p99,
  }
  const held = `under a ${hold} held for ${size.ms / 1000} s (${where}), at the end in that of the beginning`
  return {
    results: [result],
    goals: [
      goal(`cost of a read ${held}`, last.readMs / first.readMs, '<=', 1.2),
      goal(`p99 ${held}`, last.p99 / first.p99, '<=', 1.2),
    ],
  }
}

async function stretches(
  version: ArenaVersion,
  size: Size,
  { hold, segments }: Case,
): Promise<{ first: Stretch; last: Stretch }> {
  // What a function takes is measured by the server itself.
  const arena = await Arena.open(version, { track_functions: 'pl' })
  try {
    const seat = await arena.seat('Lockstep')
    const letGo = await (hold === 'snapshot' ? seat.holdSnapshots() : seat.holdTransactions())
    const looking = await seat.connectToDelivery()
    try {
      const [latencies, reads] = await Promise.all([
        seat.latencies(size.perSecond, WARM_UP_MS, size.ms),
        costsOfReading(looking, size.ms),
        leaveSegments(seat, size.ms, segments),
      ])
      const count = Math.max(1, Math.round(latencies.length * PART))
      return {
        first: { readMs: reads.first, ...percentiles(latencies.slice(0, count)) },
        last: { readMs: reads.last, ...percentiles(latencies.slice(-count)) },
      }
    } finally {
      await looking.end()
      await letGo()
    }
  } finally {
    await arena.close()
  }
}

/** The mean cost of a read, in milliseconds, at the beginning and at the end. */
async function costsOfReading(client: pg.Client, ms: number): Promise<{ first: number; last: number }> {
  const read = async (): Promise<{ calls: number; ms: number }> =>
    (await client.query<{ calls: number; ms: number }>(READ_COST)).rows[0] ?? { calls: 0, ms: 0 }
  const between = async (forMs: number): Promise<number> => {
    const before = await read()
    let after = before
    // Sessions report what they did about once a second.
    for (const until = performance.now() + forMs; performance.now() < until || after.calls === before.calls;) {
      await sleep(Math.min(forMs, 100))
      after = await read()
    }
    return (after.ms - before.ms) / (after.calls - before.calls)
  }
  const startedAt = performance.now()
  await sleep(WARM_UP_MS)
  const first = await between(ms * PART)
  await sleep(Math.max(0, startedAt + ms * (1 - PART) - performance.now()))
  return { first, last: await between(ms * PART) }
}

/** In the middle, at even distances. */
async function leaveSegments(seat: Seat, ms: number, segments: number): Promise<void> {
  if (segments === 0) return
  const client = await seat.connectToDelivery()
  try {
    for (let n = 0; n < segments; n++) {
      await sleep((ms * (1 - 3 * PART)) / segments)
      for (const statement of NEXT_SEGMENT) await client.query(statement)
    }
  } finally {
    await client.end()
  }
}
