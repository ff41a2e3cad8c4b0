import { setTimeout as sleep } from 'node:timers/promises'
import { type DispatcherOptions, ShardsBusyError } from 'pg-lockstep'
import { evidence, goal } from '../../tools/judge/report.ts'
import { Arrivals } from '../checkers/arrivals.ts'
import { strikeSessions } from '../faults/sessions.ts'
import type { Random } from '../seed.ts'
import { until } from '../until.ts'
import { attackInLab, type ReportProgress } from './attack.ts'
import type { Client } from './client.ts'
import { type Lab } from './lab.ts'
import { Dispatchers } from './outbox/dispatchers.ts'
import { writeOnce, Writings } from './outbox/writers.ts'
import { BEGIN_ONLY, CHANGE_NUMBER, HOLD_FIRST_SHARD, MEMBERS, RELEASE_FIRST_SHARD, SHARES } from './split.sql.ts'

interface Size {
  readonly processes: number
  readonly writers: number
  /** From 8 shards to these, one after the other. */
  readonly steps: readonly number[]
  readonly stepMs: number
  /** For so long the pause at a split is watched. */
  readonly watchedMs: number
  readonly faultEveryMs: number
  readonly minEvents: number
  readonly minStruck: number
  /** Processes, and dispatchers in each, over which the shards are spread in the end. */
  readonly many: { readonly processes: number; readonly runs: number; readonly leaving: number; readonly ttlMs: number }
}

const KEYS = 300
const TTL_MS = 1500
const REST_MS = 60_000
const SESSIONS_AT_ONCE = 4
const CONTROL_KEYS = 40
const TRICKLE_MS = 100

/**
 * A dispatcher with 8 shards, in several processes and under load, is split step by step up to 512. Meanwhile processes are killed and frozen in the
 * middle of a batch, sessions are ended, and one split is announced and not made, as by a process that dies. At the sink, the first deliveries of
 * each stream must be 1, 2, 3, …: everything that was committed, nothing that was not. Then many dispatchers share the 512 shards: evenly, also when
 * processes go and come. Changing the number of shards without their cursors must be found out by the same checker.
 */
export const split = attackInLab<Size>({
  name: 'split',
  about: 'shards that are split from 8 to 512 under load: every stream keeps its order, and nothing is lost',
  full: {
    processes: 6,
    writers: 4,
    steps: [16, 32, 64, 128, 256, 512],
    stepMs: 10_000,
    watchedMs: 3000,
    faultEveryMs: 1500,
    minEvents: 20_000,
    minStruck: 10,
    many: { processes: 20, runs: 10, leaving: 5, ttlMs: 5000 },
  },
  small: {
    processes: 2,
    writers: 2,
    steps: [16, 128],
    stepMs: 500,
    watchedMs: 500,
    faultEveryMs: 700,
    minEvents: 300,
    minStruck: 1,
    many: { processes: 2, runs: 3, leaving: 1, ttlMs: 2000 },
  },
  settings: { synchronous_commit: 'off', deadlock_timeout: '50ms', max_connections: '300' },
  async run(lab, size, reportProgress, random) {
    const faults = { strikes: 0, killed: 0, stopped: 0, 'cut off': 0 }
    const arrivals = new Arrivals()
    const writings = new Writings(random)
    const dispatchers = new Dispatchers(lab.url('direct'), arrivals, { ttlMs: TTL_MS, random })
    const client = lab.client('pg', lab.url('direct'), { poolSize: size.writers + 2 })
    dispatchers.start(size.processes)
    let splits: Splits
    try {
      const writing = Promise.all(
        Array.from({ length: size.writers }, async () => {
          while (!writings.over) await writeOnce(client.lockstep, writings, KEYS)
        }),
      )
      while (arrivals.count < 100) await sleep(20)
      const striking = repeatUntilOver(
        writings,
        () => strike(lab, dispatchers, faults, random),
        size.faultEveryMs,
        random,
      )
      splits = await splitStepByStep(lab, client, size, arrivals, reportProgress)
      const deadline = performance.now() + REST_MS
      // On a busy machine until it has shown something, but not forever.
      while (
        (arrivals.count < 2 * size.minEvents || faults.killed + faults.stopped < size.minStruck) &&
        performance.now() < deadline
      )
        await sleep(50)
      writings.over = true
      await Promise.all([writing, striking])
      reportProgress('split: waiting for the rest')
      const restUntil = performance.now() + REST_MS
      while (arrivals.missing(writings.committed) > 0 && performance.now() < restUntil) await sleep(100)
      await dispatchers.stopAll()
    } finally {
      writings.over = true
      await dispatchers.killAll()
    }
    const { events, deliveries, duplicates, outOfOrder, diverged, examples } = arrivals.report()
    for (const example of examples) reportProgress(`split: ${example}`)
    // Without events shards would rest, and no process holds a resting shard.
    const trickle = new Writings(random)
    const trickling = repeatUntilOver(trickle, () => writeOnce(client.lockstep, trickle, KEYS), TRICKLE_MS, random)
    const spread = await spreadOver(lab, size, random, reportProgress).finally(() => (trickle.over = true))
    await trickling
    const lost = await splitNaively(lab, client, reportProgress)
    await client.close()
    return {
      results: [
        {
          events,
          deliveries,
          duplicates,
          ...faults,
          ...splits,
          'longest pause at a split, ms': splits.pauseMs,
          ...spread,
        },
      ],
      goals: [
        goal('events', events, '>=', size.minEvents),
        goal('splits', splits.made, '=', size.steps.length),
        goal('first deliveries out of order, or with a gap', outOfOrder, '=', 0),
        goal('numbers that came with two ids', diverged, '=', 0),
        goal('committed events that did not arrive', arrivals.missing(writings.committed), '=', 0),
        goal('events that were rolled back and arrived', arrivals.arrived(writings.rolledBack), '=', 0),
        goal('shards above or below an even share, after dispatchers came and went', spread.uneven, '=', 0),
        goal('longest time until they were spread evenly, ms', spread.longestMs, '<=', 15_000),
        evidence('processes struck in the middle of a batch', faults.killed + faults.stopped, '>=', size.minStruck),
        evidence('sessions ended', faults['cut off'], '>=', 1),
        evidence('control, number changed without cursors: events lost', lost, '>=', 1),
      ],
    }
  },
})

interface Splits {
  readonly made: number
  /** Refused because an owner from before the last split still had a shard. */
  readonly refused: number
  /** Shards whose owner did not release them in time. */
  readonly notReleased: number
  readonly pauseMs: number
}

async function splitStepByStep(
  lab: Lab,
  { lockstep }: Client,
  size: Size,
  arrivals: Arrivals,
  reportProgress: ReportProgress,
): Promise<Splits> {
  let [made, refused, notReleased, pauseMs] = [0, 0, 0, 0]
  // Announced, and not made.
  await lab.admin.query(BEGIN_ONLY, [1000])
  for (const shards of size.steps) {
    const over = performance.now() + size.stepMs
    for (let tries = 0; tries < 100; tries++) {
      const pause = longestPause(arrivals, size.watchedMs)
      try {
        const found = await lockstep.outbox.split('default', { shards, reason: 'attack' })
        notReleased += found.notReleased
        made++
        pauseMs = Math.max(pauseMs, await pause)
        break
      } catch (error) {
        if (!(error instanceof ShardsBusyError)) throw error
        refused++
        await sleep(200)
      }
    }
    reportProgress(`split: ${shards} shards, ${arrivals.count} deliveries`)
    await sleep(Math.max(0, over - performance.now()))
  }
  return { made, refused, notReleased, pauseMs: Math.round(pauseMs) }
}

/** The longest time without a delivery from now on. */
async function longestPause(arrivals: Arrivals, withinMs: number): Promise<number> {
  let [since, count, longest] = [performance.now(), arrivals.count, 0]
  const deadline = since + withinMs
  while (performance.now() < deadline) {
    await sleep(10)
    const now = performance.now()
    longest = Math.max(longest, now - since)
    if (arrivals.count > count) [since, count] = [now, arrivals.count]
  }
  return longest
}

async function repeatUntilOver(
  writings: Writings,
  doOnce: () => Promise<void>,
  everyMs: number,
  random: Random,
): Promise<void> {
  while (!writings.over) {
    await sleep(everyMs * (0.5 + random.next()))
    if (!writings.over) await doOnce()
  }
}

async function strike(
  lab: Lab,
  dispatchers: Dispatchers,
  faults: { strikes: number; killed: number; stopped: number; 'cut off': number },
  random: Random,
): Promise<void> {
  const kind = faults.strikes++ % 3
  if (kind === 0) {
    faults['cut off'] += await strikeSessions(lab.admin, 'terminate', {
      application: 'dispatcher',
      most: SESSIONS_AT_ONCE,
    })
    return
  }
  const victim = await dispatchers.inFlight(1000)
  if (victim === undefined) return
  if (kind === 1) {
    await dispatchers.kill(victim)
    faults.killed++
  } else {
    dispatchers.freeze(victim, TTL_MS * (0.3 + random.next() * 2))
    faults.stopped++
  }
}

interface Spread {
  readonly dispatchers: number
  /** Shards that are too many or too few somewhere, after the last change. */
  readonly uneven: number
  readonly longestMs: number
}

/** Many dispatchers begin at once, some of them die, and others come. */
async function spreadOver(
  lab: Lab,
  { many, steps }: Size,
  random: Random,
  reportProgress: ReportProgress,
): Promise<Spread> {
  const shards = steps.at(-1) ?? 8
  const dispatchers = new Dispatchers(lab.url('direct'), new Arrivals(), { ttlMs: many.ttlMs, random, runs: many.runs })
  let [longestMs, uneven] = [0, 0]
  try {
    for (const change of ['begin', 'die', 'come'] as const) {
      if (change === 'begin') dispatchers.start(many.processes)
      else if (change === 'die') await dispatchers.remove(many.leaving)
      else dispatchers.start(many.leaving)
      const count = dispatchers.count * many.runs
      // How long processes take to start is not the question.
      const begunAt = performance.now()
      if (change !== 'die') await until(() => haveJoined(lab, count), REST_MS)
      const since = performance.now()
      reportProgress(`split: ${count} dispatchers have joined after ${Math.round(since - begunAt)} ms (${change})`)
      do {
        await sleep(100)
        uneven = await unevenShards(lab, shards, count)
      } while (uneven > 0 && performance.now() < since + REST_MS)
      const tookMs = Math.round(performance.now() - since)
      reportProgress(`split: ${shards} shards over ${count} dispatchers after ${tookMs} ms (${change})`)
      longestMs = Math.max(longestMs, tookMs)
      if (uneven > 0) break
    }
    await dispatchers.stopAll()
  } finally {
    await dispatchers.killAll()
  }
  return { dispatchers: many.processes * many.runs, uneven, longestMs }
}

async function haveJoined(lab: Lab, count: number): Promise<boolean> {
  const { rows } = await lab.admin.query<{ members: number }>(MEMBERS)
  return rows[0]?.members === count
}

async function unevenShards(lab: Lab, shards: number, dispatchers: number): Promise<number> {
  const { rows } = await lab.admin.query<{ holder: string; shards: number }>(SHARES)
  const [least, most] = [Math.floor(shards / dispatchers), Math.ceil(shards / dispatchers)]
  const owned = rows.reduce((sum, row) => sum + row.shards, 0)
  const outside = rows.reduce((sum, row) => sum + Math.max(0, row.shards - most) + Math.max(0, least - row.shards), 0)
  return outside + Math.max(0, dispatchers - rows.length) * least + (shards - owned)
}

/** How many events are lost where the number of shards is changed and their cursors are not. */
async function splitNaively(lab: Lab, { lockstep }: Client, reportProgress: ReportProgress): Promise<number> {
  reportProgress('split: the control')
  const arrivals = new Arrivals()
  const options: DispatcherOptions = {
    name: 'control',
    topics: ['control'],
    sink: (events) => {
      for (const { topic, key, seq, id, payload } of events)
        arrivals.see({ key: `${topic}/${key}`, seq, id, mark: String(payload) })
    },
  }
  const control = lockstep.outbox.dispatcher(options)
  await lockstep.outbox.dispatcher({ ...options, shards: 2 }).drain()
  const marks = Array.from({ length: CONTROL_KEYS }, (_, n) => String(n))
  await lockstep.transaction({}, (tx) =>
    tx.enqueueMany(marks.map((mark) => ({ topic: 'control', key: mark, payload: mark }))),
  )
  // Of one of the two shards everything is delivered.
  await lab.admin.query(HOLD_FIRST_SHARD)
  await control.drain({ maxMs: 2000 })
  await lab.admin.query(RELEASE_FIRST_SHARD)
  await lab.admin.query(CHANGE_NUMBER)
  await control.drain()
  return arrivals.missing(marks)
}
