import { randomUUID } from 'node:crypto'
import type { BatchContext, Delivery, OutboxEvent, Sink } from '../outbox/index.ts'
import type { Broker, Connected, ConnectOptions, RawHeaders } from '../../tools/brokers/broker.ts'
import { type Proxy, startProxy } from '../testing/index.ts'
import type { ReceivedEvent } from './message.ts'

/** A real broker, and the way of all publishers to it. */
export interface SinkBench {
  /**
   * The outcome of an event that comes a second time, or from a dispatcher that lost its shard: it is kept out of the broker, or it
   * is there again and a consumer knows it by number and id.
   */
  readonly again: 'kept out' | 'recognizable'
  /** A sink on a client of its own, as another process has it. It goes through the proxy, and is closed by the bench. */
  open(options?: Pick<ConnectOptions, 'cloudEvents'>): Promise<Sink>
  /** All that the broker has of a topic, in its order, read past the proxy. */
  received(topic: string): Promise<readonly ReceivedEvent[]>
  /** The headers of the same messages, as they are there. */
  readonly headers: ((topic: string) => Promise<readonly RawHeaders[]>) | undefined
  /** How it carries the attributes of CloudEvents: the name of one, and the text `Größe "1" 100%`. */
  readonly cloudEvents?: { readonly prefix: string; readonly text: string } | undefined
  readonly proxy: Proxy
  /** `kill -9`, or as near to it as the broker goes. */
  kill(): Promise<void>
  /** Starts it again, with what it had. Comes back when it is ready. */
  start(): Promise<void>
  /** The size of a body that the sink refuses. */
  readonly tooLarge: number
  /** Ends everything that was opened. */
  close(): Promise<void>
}

/** Long enough for a busy machine, short enough for a test that waits for it to pass. */
const TIMEOUT_MS = 4000

/** A bench on a broker of its own. */
export async function benchOf(
  broker: Broker,
  facts: Pick<SinkBench, 'again' | 'tooLarge' | 'cloudEvents'>,
): Promise<SinkBench> {
  const running = await broker.run()
  const [host, port] = running.address.split(':') as [string, string]
  const proxy = await startProxy({ targetHost: host, targetPort: Number(port) })
  const opened: Connected[] = []
  return {
    ...facts,
    proxy,
    async open(options = {}) {
      const connected = await broker.connect(`127.0.0.1:${proxy.port}`, { timeoutMs: TIMEOUT_MS, ...options })
      opened.push(connected)
      return connected.sink
    },
    received: (topic) => running.received(topic),
    headers: running.headers?.bind(running),
    kill: () => running.kill(),
    start: () => running.start(),
    async close() {
      for (const connected of opened) await connected.end()
      await proxy.close()
      await running.stop()
    },
  }
}

export interface EventParts {
  readonly id?: string
  readonly payload?: unknown
  readonly bytes?: Buffer
  readonly headers?: Readonly<Record<string, string>>
  readonly tombstone?: 'skipped' | 'dead' | 'erased'
  readonly fence?: bigint
  readonly generation?: number
}

let position = 0
const HISTORY = randomUUID()

/** An event as a dispatcher has it. */
export function eventOf(topic: string, key: string, seq: number, parts: EventParts = {}): OutboxEvent {
  const { id = randomUUID(), payload = { seq }, bytes, headers = {}, tombstone, fence = 1n, generation = 1 } = parts
  const json = tombstone === undefined ? Buffer.from(JSON.stringify(payload)) : Buffer.alloc(0)
  return {
    topic,
    key,
    seq,
    id,
    payload: tombstone === undefined ? (bytes ?? payload) : undefined,
    body: bytes ?? json,
    contentType: bytes === undefined ? 'application/json' : 'application/octet-stream',
    headers,
    enqueuedAt: new Date(1_700_000_000_000 + seq),
    position: ++position,
    tombstone,
    fence,
    history: HISTORY,
    generation,
  }
}

/** `count` events of each of `keys`, the streams interleaved. */
export function eventsOf(topic: string, keys: readonly string[], count: number, from = 1): OutboxEvent[] {
  return Array.from({ length: count }, (_, index) => keys.map((key) => eventOf(topic, key, from + index))).flat()
}

/** The same event as the next owner of its shard sends it. */
export function underFence(events: readonly OutboxEvent[], fence: bigint): OutboxEvent[] {
  return events.map((event) => ({ ...event, fence }))
}

export function contextOf(parts: Partial<BatchContext> = {}): BatchContext {
  return {
    dispatcher: 'conformance',
    shard: 0,
    fence: 1n,
    history: HISTORY,
    signal: new AbortController().signal,
    ...parts,
  }
}

/** Sends as a dispatcher does: what was not sent comes again, from each stream's first such event on, until all was. */
export async function sendAll(sink: Sink, events: readonly OutboxEvent[], context = contextOf()): Promise<void> {
  let left: readonly OutboxEvent[] = events
  while (left.length > 0) {
    const answers = await sink.send(left, context).catch(() => left.map((): Delivery => ({ unknown: 'it threw' })))
    for (const answer of answers) {
      if (typeof answer === 'object' && 'refused' in answer) throw new Error(`refused: ${answer.refused}`)
    }
    const stopped = new Set<string>()
    left = left.filter((event, place) => {
      if (answers[place] !== 'sent') stopped.add(event.key)
      return stopped.has(event.key)
    })
    if (left.length > 0) await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

/** Per key, the numbers in the order in which each came first; and what came again with another id, which must not be. */
export function firstDeliveries(received: readonly ReceivedEvent[]): {
  readonly order: Record<string, number[]>
  readonly again: number
  readonly diverged: number
} {
  const order: Record<string, number[]> = {}
  const ids = new Map<string, string>()
  let again = 0
  let diverged = 0
  for (const { key, seq, id } of received) {
    const known = ids.get(`${key} ${seq}`)
    if (known === undefined) {
      ids.set(`${key} ${seq}`, id)
      ;(order[key] ??= []).push(seq)
    } else if (known === id) again++
    else diverged++
  }
  return { order, again, diverged }
}
