import { setTimeout as sleep } from 'node:timers/promises'
import { evidence, goal } from '../../tools/judge/report.ts'
import { Arrivals } from '../checkers/arrivals.ts'
import { OrderPerKey } from '../checkers/keyOrder.ts'
import type { Random } from '../seed.ts'
import { attackInLab, type ReportProgress } from './attack.ts'
import { CREATE_NAIVE, FILL_NAIVE, HELD_SHARDS, MARK_NAIVE, TAKE_NAIVE } from './drain.sql.ts'
import { type Lab } from './lab.ts'
import { Dispatchers } from './outbox/dispatchers.ts'
import { BEGIN, COMMIT } from './outbox/outbox.sql.ts'
import { writeOnce, Writings } from './outbox/writers.ts'

interface Size {
  readonly durationMs: number
  readonly minEvents: number
  readonly processes: number
  /** At once in each process. */
  readonly invocations: number
  readonly writers: number
  readonly faultEveryMs: number
  readonly minStruck: number
}

const KEYS = 200
const TTL_MS = 1000
/** Until everything has arrived. */
const REST_MS = 60_000
const NAIVE = { keys: 20, events: 100, invocations: 10 } as const

/**
 * A hundred calls of `drain()` at once, over ten processes, each begun again as soon as it has ended, as functions and cron would: with
 * limits of time and number. Writers write all the time. Processes are killed and stopped in the middle of a batch, and their sessions
 * ended. At the sink, the first deliveries of each stream must be 1, 2, 3, …: everything that was committed, nothing that was not; and in
 * the end no process holds a shard. Calls that take what is pending FOR UPDATE SKIP LOCKED must be found out by the same checker.
 */
export const drain = attackInLab<Size>({
  name: 'drain',
  about: 'a hundred drains of the outbox at once: they share the shards, and every stream keeps its order',
  full: {
    durationMs: 60_000,
    minEvents: 20_000,
    processes: 10,
    invocations: 10,
    writers: 4,
    faultEveryMs: 1000,
    minStruck: 10,
  },
  small: {
    durationMs: 4000,
    minEvents: 500,
    processes: 2,
    invocations: 10,
    writers: 2,
    faultEveryMs: 500,
    minStruck: 1,
  },
  settings: { synchronous_commit: 'off', deadlock_timeout: '50ms' },
  async run(lab, size, reportProgress, random) {
    const faults = { strikes: 0, killed: 0, stopped: 0, 'cut off': 0 }
    const arrivals = new Arrivals()
    const writings = new Writings(random)
    const drains = new Dispatchers(lab.url('direct'), arrivals, { ttlMs: TTL_MS, random, drains: size.invocations })
    drains.start(size.processes)
    try {
      const writing = write(lab, writings, size.writers)
      while (arrivals.count < 100) await sleep(20)
      const until = performance.now() + size.durationMs
      // On a busy machine until it has shown something, but not forever.
      const shown = (): boolean =>
        faults.killed + faults.stopped >= size.minStruck &&
        faults['cut off'] > 0 &&
        arrivals.count >= 2 * size.minEvents
      while (performance.now() < until || (!shown() && performance.now() < until + REST_MS)) {
        await sleep(size.faultEveryMs * (0.5 + random.next()))
        reportProgress(`drain: ${arrivals.count} deliveries, ${Math.round((until - performance.now()) / 1000)} s left`)
        await drains.strike(lab, faults)
      }
      writings.over = true
      await writing
      reportProgress('drain: waiting for the rest')
      const deadline = performance.now() + REST_MS
      while (arrivals.missing(writings.committed) > 0 && performance.now() < deadline) await sleep(100)
      await drains.stopAll()
    } finally {
      await drains.killAll()
    }
    const { events, deliveries, duplicates, outOfOrder, diverged, examples } = arrivals.report()
    for (const example of examples) reportProgress(`drain: ${example}`)
    for (const [failure, times] of drains.failures) reportProgress(`drain: ${times} calls failed with ${failure}`)
    const held = await heldShards(lab, TTL_MS)
    const found = await drainNaively(lab, random, reportProgress)
    const { calls, fruitful, overdrawn, wrong } = drains.drained
    return {
      results: [{ events, deliveries, duplicates, calls, 'calls that delivered': fruitful, ...faults }],
      goals: [
        goal('events', events, '>=', size.minEvents),
        goal('first deliveries out of order, or with a gap', outOfOrder, '=', 0),
        goal('numbers that came with two ids', diverged, '=', 0),
        goal('committed events that did not arrive', arrivals.missing(writings.committed), '=', 0),
        goal('events that were rolled back and arrived', arrivals.arrived(writings.rolledBack), '=', 0),
        goal('calls that delivered more than maxEvents', overdrawn, '=', 0),
        goal('calls that failed for another reason than a lost connection', wrong, '=', 0),
        goal('shards held when all calls had ended', held, '=', 0),
        evidence('calls that delivered', fruitful, '>=', size.processes),
        evidence('processes struck in the middle of a batch', faults.killed + faults.stopped, '>=', size.minStruck),
        evidence('sessions ended', faults['cut off'], '>=', 1),
        evidence('control, FOR UPDATE SKIP LOCKED: out of order', found, '>=', 1),
      ],
    }
  },
})

async function write(lab: Lab, writings: Writings, writers: number): Promise<void> {
  const client = lab.client('pg', lab.url('direct'), { poolSize: writers + 1 })
  const loops = Array.from({ length: writers }, async () => {
    while (!writings.over) await writeOnce(client.lockstep, writings, KEYS)
  })
  await Promise.all(loops)
  await client.close()
}

/** What is still held once the leases of those that were killed have ended. */
async function heldShards(lab: Lab, ttlMs: number): Promise<number> {
  const until = performance.now() + 2 * ttlMs
  for (;;) {
    const { rows } = await lab.admin.query<{ held: number }>(HELD_SHARDS)
    const held = rows[0]?.held ?? 0
    if (held === 0 || performance.now() > until) return held
    await sleep(100)
  }
}

/** How many first deliveries are out of order if each call takes what no other has locked. */
async function drainNaively(lab: Lab, random: Random, reportProgress: ReportProgress): Promise<number> {
  reportProgress('drain: the control')
  await lab.admin.query(CREATE_NAIVE)
  await lab.admin.query(FILL_NAIVE, [NAIVE.keys, NAIVE.events])
  const order = new OrderPerKey()
  const pool = lab.pool(NAIVE.invocations)
  const call = async (): Promise<number> => {
    const client = await pool.connect()
    try {
      await client.query(BEGIN)
      const { rows } = await client.query<{ id: string; key: string; seq: number }>(TAKE_NAIVE)
      await sleep(random.next() * 4)
      for (const { id, key, seq } of rows) order.see({ id, key, seq })
      await client.query(MARK_NAIVE, [rows.map(({ id }) => id)])
      await client.query(COMMIT)
      return rows.length
    } finally {
      client.release()
    }
  }
  await Promise.all(
    Array.from({ length: NAIVE.invocations }, async () => {
      while ((await call()) > 0);
    }),
  )
  return order.counts().outOfOrder
}
