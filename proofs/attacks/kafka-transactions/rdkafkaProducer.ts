import { createRequire } from 'node:module'
import type { KafkaProducer, KafkaTransactionalProducer } from 'pg-lockstep/kafka'

type Callback = (error?: Error | null) => void

/** What is used of node-rdkafka: it is installed for this proof alone, and its types are not there before. */
interface NativeProducer {
  on(event: 'delivery-report', listener: (error: Error | null, report: { opaque: Callback }) => void): void
  on(event: 'event.error', listener: (error: Error) => void): void
  connect(options: { timeout: number }, callback: Callback): void
  disconnect(timeoutMs: number, callback: Callback): void
  setPollInterval(intervalMs: number): void
  initTransactions(timeoutMs: number, callback: Callback): void
  beginTransaction(callback: Callback): void
  commitTransaction(timeoutMs: number, callback: Callback): void
  abortTransaction(timeoutMs: number, callback: Callback): void
  produce(
    topic: string,
    partition: number | null,
    value: Buffer,
    key: string,
    timestamp: number,
    opaque: Callback,
    headers: Record<string, string>[],
  ): void
}

interface NativeClient {
  readonly Producer: new (config: Record<string, unknown>, topicConfig: Record<string, unknown>) => NativeProducer
}

const TIMEOUT_MS = 5000
const POLL_MS = 5

/** Where a dispatcher can be paused. */
export type Step = 'opening' | 'sending' | 'committing'

export interface RdkafkaOptions {
  readonly transactionalId?: string
  /** Waits there. */
  readonly at?: (step: Step) => Promise<void>
}

const done = (ask: (callback: Callback) => void): Promise<void> =>
  new Promise((resolve, reject) => ask((error) => (error ? reject(error) : resolve())))

/** librdkafka in the shape of kafkajs. */
export function rdkafkaProducer(
  broker: string,
  { transactionalId, at = async () => undefined }: RdkafkaOptions,
): KafkaTransactionalProducer & KafkaProducer {
  const client = createRequire(import.meta.url)('node-rdkafka') as NativeClient
  const native = new client.Producer(
    {
      'bootstrap.servers': broker,
      'enable.idempotence': true,
      'linger.ms': 0,
      dr_cb: true,
      ...(transactionalId === undefined ? {} : { 'transactional.id': transactionalId }),
    },
    {},
  )
  native.on('delivery-report', (error, { opaque }) => opaque(error))
  // Every waiter receives the same.
  native.on('event.error', () => undefined)
  const sendBatch: KafkaProducer['sendBatch'] = async ({ topicMessages }) => {
    await at('sending')
    const reports = topicMessages.flatMap(({ topic, messages }) =>
      messages.map(({ key, value, headers }) => {
        const pairs = Object.entries(headers).map(([name, text]) => ({ [name]: text }))
        return done((callback) => native.produce(topic, null, value, key, Date.now(), callback, pairs))
      }),
    )
    const failed = (await Promise.allSettled(reports)).find(({ status }) => status === 'rejected')
    if (failed?.status === 'rejected') throw failed.reason
  }
  return {
    sendBatch,
    async connect() {
      await at('opening')
      await done((callback) => native.connect({ timeout: TIMEOUT_MS }, callback))
      native.setPollInterval(POLL_MS)
      if (transactionalId !== undefined) await done((callback) => native.initTransactions(TIMEOUT_MS, callback))
    },
    disconnect: () => done((callback) => native.disconnect(TIMEOUT_MS, callback)),
    async transaction() {
      await done((callback) => native.beginTransaction(callback))
      return {
        sendBatch,
        async commit() {
          await at('committing')
          await done((callback) => native.commitTransaction(TIMEOUT_MS, callback))
        },
        abort: () => done((callback) => native.abortTransaction(TIMEOUT_MS, callback)),
      }
    },
  }
}
