import { randomUUID } from 'node:crypto'
import type { BatchContext, OutboxEvent } from 'pg-lockstep'
import type { Broker } from '../tools/brokers/broker.ts'
import { kafka } from '../tools/brokers/kafka.ts'
import { nats } from '../tools/brokers/nats.ts'
import { postgres } from '../tools/brokers/postgres.ts'
import { rabbitmq } from '../tools/brokers/rabbitmq.ts'
import { redis } from '../tools/brokers/redis.ts'
import { webhook } from '../tools/brokers/webhook.ts'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import type { Bench, RunSize } from './bench.ts'
import { compare, type Contender } from './compare.ts'
import { showSpread, spreadOf } from './harness/spread.ts'

const BROKERS: readonly Broker[] = [redis, nats, kafka, rabbitmq, webhook, postgres]

interface Size {
  readonly pairs: number
  /** Batches in a turn. */
  readonly batches: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { pairs: 15, batches: 20 },
  quick: { pairs: 5, batches: 6 },
  smoke: { pairs: 1, batches: 1 },
}

/** As a dispatcher has them when there is something to do: several events of each of many streams. */
const KEYS = 100
const EVENTS_OF_A_KEY = 5
const TIMEOUT_MS = 30_000
const ENOUGH = 0.7
const PAYLOAD = Buffer.from(JSON.stringify({ id: 101, instrument: 'DE000A1EWWW0', quantity: 5, price: '101.25' }))
const HEADERS = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }

/** What a sink of ours costs beside the client's own loop: the same messages, the same order per key, the same confirmation. */
export const sinks: Bench = {
  name: 'sinks',
  about: "events/s of each sink, beside its client's own fastest loop over the same messages",
  baselines: Object.fromEntries(BROKERS.map((broker) => [broker.name, broker.byHand.toString()])),
  async run(thoroughness, reportProgress) {
    const results: ResultRow[] = []
    const goals: Goal[] = []
    for (const broker of BROKERS) {
      reportProgress(`sinks: ${broker.name}`, results.length / BROKERS.length)
      const { row, ratio } = await measure(broker, SIZES[thoroughness])
      results.push(row)
      goals.push(goal(`${broker.name}: rate, in the client's own`, ratio, '>=', ENOUGH))
    }
    return { results, goals }
  },
}

async function measure(broker: Broker, size: Size): Promise<{ row: ResultRow; ratio: number }> {
  const running = await broker.run()
  try {
    const [connected, hand] = [
      await broker.connect(running.address, { timeoutMs: TIMEOUT_MS }),
      await broker.byHand(running.address),
    ]
    const { sink } = connected
    try {
      await sink.open?.()
      const byHand = contender('by-hand', size, (events) => hand.send(events))
      const ours = contender('lockstep', size, async (events) => {
        const answers = await sink.send(events, CONTEXT)
        const failed = answers.find((answer) => answer !== 'sent')
        if (failed !== undefined) throw new Error(`${broker.name}: ${JSON.stringify(failed)}`)
      })
      const { baselineUs, candidateUs, spread } = await compare(byHand, ours, size.pairs, size.batches)
      const rate = (us: number): number => Math.round((KEYS * EVENTS_OF_A_KEY * 1_000_000) / us)
      const inRates = spreadOf(spread.samples.map((each) => 1 / each))
      const row = {
        sink: broker.name,
        'lockstep/s': rate(candidateUs),
        'by hand/s': rate(baselineUs),
        ratio: inRates.median,
        'middle half': showSpread(inRates),
      }
      return { row, ratio: inRates.median }
    } finally {
      await connected.end()
      await hand.end()
    }
  } finally {
    await running.stop()
  }
}

const HISTORY = randomUUID()

const CONTEXT: BatchContext = {
  dispatcher: 'bench',
  shard: 0,
  fence: 1n,
  history: HISTORY,
  signal: new AbortController().signal,
  owned: () => true,
}

/** Sends batch after batch to streams of its own. The batches are made beforehand: it is not part of the measurement. */
function contender(topic: string, size: Size, send: (events: readonly OutboxEvent[]) => Promise<void>): Contender {
  let seq = 0
  const batches = Array.from({ length: (size.pairs + 1) * size.batches }, () => {
    const from = seq
    seq += EVENTS_OF_A_KEY
    return Array.from({ length: KEYS * EVENTS_OF_A_KEY }, (_, place) =>
      eventOf(topic, `portfolio ${place % KEYS}`, from + 1 + Math.floor(place / KEYS)),
    )
  })
  return async (count) => {
    for (const batch of batches.splice(0, count)) await send(batch)
  }
}

function eventOf(topic: string, key: string, seq: number): OutboxEvent {
  return {
    topic,
    key,
    seq,
    id: randomUUID(),
    payload: JSON.parse(PAYLOAD.toString()) as unknown,
    body: PAYLOAD,
    contentType: 'application/json',
    headers: HEADERS,
    enqueuedAt: new Date(),
    position: seq,
    fence: 1n,
    history: HISTORY,
    generation: 1,
  }
}
