import { randomUUID } from 'node:crypto'
import type { BatchContext, Delivery, OutboxEvent, Sink } from 'pg-lockstep'
import { kafkaSink } from 'pg-lockstep/kafka'
import { receivedFrom } from '../../tools/brokers/kafka.ts'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { startKafka } from '../../tools/server/kafka.ts'
import { orderOf } from '../checkers/keyOrder.ts'
import { type FencingProxy, startFencing } from './kafka-transactions/fencing.ts'
import { ensureClient } from './kafka-transactions/install.ts'
import { rdkafkaProducer, type Step } from './kafka-transactions/rdkafkaProducer.ts'
import { type Attack, attack, type ReportProgress } from './attack.ts'

interface Size {
  readonly rounds: number
}

const STEPS: readonly Step[] = ['opening', 'sending', 'committing']
const TIMEOUT_MS = 8000

/**
 * A dispatcher is paused while it opens its producer, sends, or commits; its shard is taken over and advanced; it continues. librdkafka is
 * the client; Kafka's rule about transactional ids stands in a proxy, for the mock cluster has none. Nothing of the late one may be
 * there behind what is newer, and the new owner must get through. Without the rule, and without a transactional id, the late messages
 * must be there.
 */
export const kafkaTransactions: Attack = {
  ...attack<Size>({
    name: 'kafka-transactions',
    about:
      'a dispatcher paused in the middle of a transaction: Kafka keeps out what is late (builds node-rdkafka first)',
    full: { rounds: 99 },
    small: { rounds: 3 },
    async run({ rounds }, reportProgress) {
      ensureClient()
      const server = await startKafka()
      const broker = server.brokers[0] as string
      try {
        const fenced = await play(broker, 'transactions', true, rounds, reportProgress)
        const unfenced = await play(broker, 'transactions', false, 3, reportProgress)
        const plain = await play(broker, 'plain', true, 3, reportProgress)
        return {
          results: [
            { producer: 'a transactional id for each shard', ...fenced },
            { producer: "the same, without Kafka's rule", ...unfenced },
            { producer: 'no transactional id', ...plain },
          ] satisfies ResultRow[],
          goals: [
            goal('runs', fenced.runs, '=', rounds),
            goal('events that are not there', fenced.lost, '=', 0),
            goal('late messages behind newer ones', fenced['late messages'], '=', 0),
            goal('late dispatchers that received anything but unknown', fenced['answered otherwise'], '=', 0),
            goal('batches of a new owner that were not sent at the second try', fenced.stuck, '=', 0),
            goal('transactions committed for each batch that was sent', fenced.commits / fenced.batches, '=', 1),
            goal('requests that were refused by the rule', fenced.fenced, '>=', Math.floor(rounds / STEPS.length)),
            goal("control, without Kafka's rule: late messages", unfenced['late messages'], '>=', 1),
            goal('control, without a transactional id: late messages', plain['late messages'], '>=', 1),
          ],
        }
      } finally {
        await server.stop()
      }
    },
  }),
  needsBuild: true,
}

interface Counts {
  runs: number
  batches: number
  commits: number
  fenced: number
  'late messages': number
  'answered otherwise': number
  stuck: number
  lost: number
}

async function play(
  broker: string,
  kind: 'transactions' | 'plain',
  fence: boolean,
  rounds: number,
  reportProgress: ReportProgress,
): Promise<Counts> {
  const counts: Counts = {
    runs: 0,
    batches: 0,
    commits: 0,
    fenced: 0,
    'late messages': 0,
    'answered otherwise': 0,
    stuck: 0,
    lost: 0,
  }
  const proxy = await startFencing(broker, { fence })
  try {
    for (let round = 0; round < rounds; round++) {
      reportProgress(`kafka-transactions: ${kind}${fence ? '' : ' without the rule'}, ${round + 1} of ${rounds}`)
      const step = kind === 'plain' ? 'sending' : (STEPS[round % STEPS.length] as Step)
      await playOnce(proxy, broker, kind, step, counts)
      counts.runs++
    }
    counts.commits = proxy.commits
    counts.fenced = proxy.fenced
    return counts
  } finally {
    await proxy.close()
  }
}

async function playOnce(
  proxy: FencingProxy,
  broker: string,
  kind: 'transactions' | 'plain',
  step: Step,
  counts: Counts,
): Promise<void> {
  const topic = `t-${randomUUID().slice(0, 8)}`
  const prefix = topic
  const event = (seq: number, fence: bigint, id: string): OutboxEvent => ({
    topic,
    key: 'k',
    seq,
    id,
    payload: { seq },
    body: Buffer.from(JSON.stringify({ seq })),
    contentType: 'application/json',
    headers: {},
    enqueuedAt: new Date(),
    position: seq,
    fence,
    history: HISTORY,
    generation: 1,
  })
  const ids = Array.from({ length: 7 }, () => randomUUID())
  const events = (seqs: readonly number[], fence: bigint): OutboxEvent[] =>
    seqs.map((seq) => event(seq, fence, ids[seq] as string))

  const pause = new Pause(step)
  const late = await open(proxy, kind, prefix, (at) => pause.at(at))
  const next = await open(proxy, kind, prefix)
  let owned = true
  const first: BatchContext = { ...contextOf(1n), owned: () => owned }
  const second = contextOf(2n)
  const mustSend = async (sink: Sink, seqs: readonly number[], context: BatchContext): Promise<void> => {
    counts.batches++
    for (let tries = 0; tries < 2; tries++) {
      const answers = await sink.send(events(seqs, context.fence), context)
      if (answers.every((answer) => answer === 'sent')) return
    }
    counts.stuck++
  }
  try {
    // One that is paused while it opens has sent nothing before.
    if (step === 'opening') await mustSend(next.sink, [1, 2], contextOf(0n))
    else await mustSend(late.sink, [1, 2], first)
    pause.arm()
    const sending = late.sink.send(events([3, 4], 1n), first)
    await pause.reached
    owned = false
    await mustSend(next.sink, [3, 4], second)
    await mustSend(next.sink, [5], second)
    pause.end()
    const answers = [...(await sending), ...(await late.sink.send(events([3, 4], 1n), first))]
    counts['answered otherwise'] += answers.filter((answer) => !isUnknown(answer)).length
    await mustSend(next.sink, [6], second)
  } finally {
    await Promise.all([late.end(), next.end()])
  }
  const received = await receivedFrom(broker, topic)
  const there = orderOf(received.filter(({ id, fence }) => proxy.committed.has(`${id} ${fence}`)))
  counts['late messages'] += there.duplicates + there.inversions
  counts.lost += 6 - there.events
}

const HISTORY = randomUUID()

const isUnknown = (answer: Delivery): boolean => typeof answer === 'object' && 'unknown' in answer

function contextOf(fence: bigint): BatchContext {
  return { dispatcher: 'main', shard: 0, fence, history: HISTORY, signal: new AbortController().signal }
}

interface Opened {
  readonly sink: Sink
  end(): Promise<void>
}

/** A sink on clients of its own, as another process has it. */
async function open(
  proxy: FencingProxy,
  kind: 'transactions' | 'plain',
  prefix: string,
  at?: (step: Step) => Promise<void>,
): Promise<Opened> {
  const hook = at === undefined ? {} : { at }
  if (kind === 'transactions') {
    const transactional = (transactionalId: string): ReturnType<typeof rdkafkaProducer> =>
      rdkafkaProducer(proxy.address, { transactionalId, ...hook })
    const sink = kafkaSink({ transactional, transactionalIdPrefix: prefix, timeoutMs: TIMEOUT_MS })
    return { sink, end: async () => sink.close?.() }
  }
  const producer = rdkafkaProducer(proxy.address, hook)
  await producer.connect()
  const sink = kafkaSink({ producer, timeoutMs: TIMEOUT_MS })
  return {
    sink,
    async end() {
      await sink.close?.()
      await producer.disconnect()
    },
  }
}

/** Holds a dispatcher at a step, once. */
class Pause {
  readonly #step: Step
  #armed = false
  #reached = (): void => undefined
  #end = (): void => undefined
  readonly reached = new Promise<void>((resolve) => (this.#reached = resolve))
  readonly #ended = new Promise<void>((resolve) => (this.#end = resolve))

  constructor(step: Step) {
    this.#step = step
  }

  arm(): void {
    this.#armed = true
  }

  async at(step: Step): Promise<void> {
    if (!this.#armed || step !== this.#step) return
    this.#armed = false
    this.#reached()
    await this.#ended
  }

  end(): void {
    this.#end()
  }
}
