import { setTimeout as sleep } from 'node:timers/promises'
import type { Broker, RunningBroker } from '../../tools/brokers/broker.ts'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { orderOf, type OrderCounts } from '../checkers/keyOrder.ts'
import type { Random } from '../seed.ts'
import { attack, type ReportProgress } from './attack.ts'
import { makeDatabase } from './database.ts'
import { brokerNamed, GUARDED } from './sinks/brokers.ts'
import { Pair } from './sinks/pair.ts'
import { Trickle } from './sinks/trickle.ts'

interface Size {
  readonly runs: number
  readonly controlRuns: number
  readonly brokers: readonly string[]
  /** Those that are attacked without their guard as well. */
  readonly controls: readonly string[]
}

const GUARDED_NAMES = GUARDED.map(({ name }) => name)
const TTL_MS = 700
/** Also how long PostgreSQL lets a session be idle that was stopped with rows in its hands. */
const TIMEOUT_MS = 1000
const SHARDS = 2
const LOAD = { keys: 6, each: 4, everyMs: 15 }
const DRAIN_MS = 30_000

/**
 * A dispatcher is stopped while a batch is on its way to the broker. Its shard is taken over, and the other dispatcher continues well
 * beyond that batch. Then the first one continues, with bytes that were kept on the way, or with the rest of its batch still to send.
 */
export const zombieSink = attack<Size>({
  name: 'zombie-sink',
  about: 'a dispatcher stopped in the middle of a batch, overtaken and continued: the broker keeps what is late out',
  full: { runs: 100, controlRuns: 5, brokers: [...GUARDED_NAMES, 'kafka'], controls: GUARDED_NAMES },
  small: { runs: 2, controlRuns: 1, brokers: GUARDED_NAMES, controls: ['redis'] },
  async run(size, reportProgress, random) {
    const source = await startPostgres({ settings: { max_connections: '200' } })
    try {
      const guards = await Promise.all(
        size.brokers.map((name) => besiege(source, brokerNamed(name), size.runs, false, random, reportProgress)),
      )
      reportProgress('zombie-sink: the controls, without a guard')
      const controls = await Promise.all(
        size.controls.map((name) => besiege(source, brokerNamed(name), size.controlRuns, true, random, reportProgress)),
      )
      return {
        results: [...guards, ...controls].map((found): ResultRow => ({ ...found })),
        goals: [...guards.flatMap((found) => goalsOf(found, size.runs)), ...controls.map(controlOf)],
      }
    } finally {
      await source.stop('immediate')
    }
  },
})

interface Found extends OrderCounts {
  readonly broker: string
  readonly guard: string
  readonly runs: number
  readonly missing: number
}

function goalsOf(found: Found, wanted: number): Goal[] {
  const { broker, runs, duplicates, inversions, gaps, diverged, missing } = found
  const kept = GUARDED.some(({ name }) => name === broker)
  return [
    goal(`${broker}: dispatchers stopped in the middle of a batch and overtaken`, runs, '=', wanted),
    goal(`${broker}: first deliveries behind a later one`, inversions, '=', 0),
    ...(kept ? [goal(`${broker}: events that are there twice`, duplicates, '=', 0)] : []),
    goal(`${broker}: numbers with two ids`, diverged, '=', 0),
    goal(`${broker}: gaps, and events that are not there`, gaps + missing, '=', 0),
  ]
}

function controlOf({ broker, late, inversions }: Found): Goal {
  return goal(`control, ${broker} without the guard: late events that are there`, late + inversions, '>=', 1)
}

async function besiege(
  source: PostgresServer,
  broker: Broker,
  runs: number,
  unguarded: boolean,
  random: Random,
  reportProgress: ReportProgress,
): Promise<Found> {
  const name = `${broker.name}_${unguarded ? 'planted' : 'sink'}`
  const database = await makeDatabase(source, name)
  const { url, lockstep } = database
  await lockstep.migrate()
  const topic = `zombies-${name}`
  const running = await broker.run()
  const trickle = new Trickle(lockstep, topic, LOAD, random)
  const pair = await Pair.start(
    {
      url,
      broker: broker.name,
      address: running.address,
      ttlMs: TTL_MS,
      shards: SHARDS,
      timeoutMs: TIMEOUT_MS,
      unguarded,
    },
    topic,
  )
  try {
    let struck = 0
    for (; struck < runs; struck++) {
      reportProgress(`zombie-sink: ${name}, ${struck + 1} of ${runs}`)
      await pair.strike(struck % 2 === 0 ? 'held' : 'forwarded')
    }
    await trickle.end()
    const report = await arrived(running, topic, trickle.written)
    const missing = trickle.written - report.events
    return { broker: broker.name, guard: guardOf(broker, unguarded), runs: struck, ...report, missing }
  } finally {
    await pair.close()
    await trickle.end()
    await database.close()
    await running.stop()
  }
}

function guardOf({ name }: Broker, unguarded: boolean): string {
  if (unguarded) return 'none, planted'
  return GUARDED.some((broker) => broker.name === name) ? 'the broker' : 'number and id'
}

/** What is there, once all of it is or the time is over. */
async function arrived(running: RunningBroker, topic: string, events: number): Promise<OrderCounts> {
  const deadline = performance.now() + DRAIN_MS
  for (;;) {
    const report = orderOf(await running.received(topic))
    if (report.events >= events || performance.now() > deadline) return report
    await sleep(200)
  }
}
