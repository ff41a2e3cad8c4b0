import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Delivery, Lockstep, Sink } from 'pg-lockstep'
import type { Broker, RunningBroker } from '../../tools/brokers/broker.ts'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { orderOf, type OrderCounts } from '../checkers/keyOrder.ts'
import type { Random } from '../seed.ts'
import { attack, type ReportProgress } from './attack.ts'
import { makeDatabase } from './database.ts'
import { BROKERS, brokerNamed } from './sinks/brokers.ts'
import { Trickle, type TrickleLoad } from './sinks/trickle.ts'

interface Size {
  /** How many brokers are attacked at the same time. */
  readonly lanes: number
  /** How long the broker is killed again and again; 0: once. */
  readonly forMs: number
  /** How long it is up between its start and its next end. */
  readonly upMs: number
  readonly load: TrickleLoad
}

/** How the sink waits for the broker, and how long that is down at least: in the control longer than any sender waits. */
const PATIENT = { timeoutMs: 2000, downMs: 200 }
const IMPATIENT = { timeoutMs: 300, downMs: 1200 }
const DRAIN_MS = 90_000
const CONTROL_DRAIN_MS = 800
/** With one of them: what it shows is that the checker sees. */
const CONTROL = 'redis'

/**
 * The broker is killed under load and started again, and again. What was written to the outbox is there afterwards, in order; and the
 * keys, of which none did anything wrong, have not used up any of their attempts.
 */
export const brokerDown = attack<Size>({
  name: 'broker-down',
  about: 'brokers killed and restarted under load: nothing is lost, the order is kept, and no event is blamed',
  full: { lanes: 2, forMs: 60_000, upMs: 5000, load: { keys: 50, each: 20, everyMs: 20 } },
  small: { lanes: BROKERS.length, forMs: 0, upMs: 500, load: { keys: 20, each: 10, everyMs: 20 } },
  async run(size, reportProgress, random) {
    const source = await startPostgres({ settings: { max_connections: '200' } })
    try {
      const found: Found[] = []
      const left = [...BROKERS]
      const lane = async (): Promise<void> => {
        for (let broker = left.shift(); broker !== undefined; broker = left.shift()) {
          found.push(await besiege(source, broker, size, random, reportProgress))
        }
      }
      await Promise.all(Array.from({ length: size.lanes }, lane))
      reportProgress('broker-down: the control')
      const planted = await besiege(
        source,
        brokerNamed(CONTROL),
        { ...size, forMs: 0 },
        random,
        reportProgress,
        believing,
      )
      return {
        results: [...found, { ...planted, broker: `${CONTROL}, believing` }].map((each): ResultRow => ({ ...each })),
        goals: [...found.flatMap(goalsOf), controlOf(planted)],
      }
    } finally {
      await source.stop('immediate')
    }
  },
})

interface Found extends OrderCounts {
  readonly broker: string
  readonly kills: number
  readonly missing: number
  /** Times that a stream was parked with an attempt counted against it. */
  readonly blamed: number
  /** Streams that wait in the end. */
  readonly parked: number
}

function goalsOf({ broker, kills, missing, gaps, inversions, diverged, blamed, parked }: Found): Goal[] {
  return [
    goal(`${broker}: times killed`, kills, '>=', 1),
    goal(`${broker}: events that are not there`, missing + gaps, '=', 0),
    goal(`${broker}: first deliveries behind a later one, or numbers with two ids`, inversions + diverged, '=', 0),
    goal(`${broker}: attempts used up, and streams that wait in the end`, blamed + parked, '=', 0),
  ]
}

function controlOf({ missing, gaps, inversions }: Found): Goal {
  return goal(
    'control, a sink that takes silence for consent: what the checker finds',
    missing + gaps + inversions,
    '>=',
    1,
  )
}

/** The planted bug: what is not known counts as sent. */
function believing(sink: Sink): Sink {
  return {
    name: sink.name,
    async send(events, context) {
      const answers = await sink.send(events, context).catch((): Delivery[] => [])
      return events.map((_, place) => {
        const answer = answers[place] ?? 'sent'
        return typeof answer === 'object' && 'refused' in answer ? answer : 'sent'
      })
    },
  }
}

async function besiege(
  source: PostgresServer,
  broker: Broker,
  size: Size,
  random: Random,
  reportProgress: ReportProgress,
  plant?: (sink: Sink) => Sink,
): Promise<Found> {
  const name = `${broker.name}_${plant === undefined ? 'down' : 'planted'}`
  const topic = `down-${name}`
  const database = await makeDatabase(source, name)
  const { lockstep } = database
  await lockstep.migrate()
  const running = await broker.run()
  const { timeoutMs, downMs } = plant === undefined ? PATIENT : IMPATIENT
  const connected = await broker.connect(running.address, { timeoutMs })
  let blamed = 0
  const onParked = (message: unknown): void => {
    const { topic: of, attempts } = message as { topic: string; attempts: number }
    if (of === topic && attempts > 0) blamed++
  }
  subscribe('lockstep:outbox.parked', onParked)
  const stop = new AbortController()
  const sink = plant === undefined ? connected.sink : plant(connected.sink)
  const dispatching = lockstep.outbox
    .dispatcher({ sink, shards: 4, backoffMs: { longest: 1000 } })
    .run({ signal: stop.signal })
  const trickle = new Trickle(lockstep, topic, size.load, random)
  try {
    await flowing(running, topic)
    const deadline = performance.now() + size.forMs
    let kills = 0
    do {
      await sleep(size.upMs)
      reportProgress(`broker-down: ${name}, killed ${++kills} times`)
      await running.kill()
      await sleep(downMs)
      await running.start()
    } while (performance.now() < deadline)
    await sleep(Math.min(size.upMs, 1000))
    await trickle.end()
    reportProgress(`broker-down: ${name}, waiting for the rest`)
    const drainMs = plant === undefined ? DRAIN_MS : CONTROL_DRAIN_MS
    const report = await arrived(running, topic, trickle.written, drainMs)
    const parked = await waiting(lockstep, drainMs)
    return { broker: broker.name, kills, ...report, missing: trickle.written - report.events, blamed, parked }
  } finally {
    unsubscribe('lockstep:outbox.parked', onParked)
    stop.abort()
    await dispatching
    await trickle.end()
    await connected.end()
    await database.close()
    await running.stop()
  }
}

/** Comes back when events arrive. */
async function flowing(running: RunningBroker, topic: string): Promise<void> {
  while ((await running.received(topic).catch(() => [])).length < 20) await sleep(50)
}

/** How many streams wait, once none does or the time is over: what was not known is asked for again. */
async function waiting(lockstep: Lockstep, drainMs: number): Promise<number> {
  const deadline = performance.now() + drainMs
  for (;;) {
    const { length } = await lockstep.outbox.parked()
    if (length === 0 || performance.now() > deadline) return length
    await sleep(100)
  }
}

/** What has arrived when all has, or when nothing came for so long: on a busy machine the rest takes its time. */
async function arrived(running: RunningBroker, topic: string, events: number, drainMs: number): Promise<OrderCounts> {
  let deadline = performance.now() + drainMs
  let before = 0
  for (;;) {
    const report = orderOf(await running.received(topic))
    if (report.events >= events || performance.now() > deadline) return report
    if (report.events > before) deadline = performance.now() + drainMs
    before = report.events
    await sleep(500)
  }
}
