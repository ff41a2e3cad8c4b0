/**
 * A process with a consumer, to be killed, stopped and asked to leave. It reports that it runs, and for webhooks its port. Argument: a JSON
 * object, `ConsumerProcessOptions`.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { BrokerConsumerOptions, EventHandler, InboxEvent, Lockstep } from 'pg-lockstep'
import { webhookConsumer } from 'pg-lockstep/webhook'
import { consumedBrokers } from '../../../tools/brokers/consumed.ts'
import { random } from '../../seed.ts'
import { openClient } from '../client.ts'
import { INSERT_EFFECT } from '../consumers.sql.ts'
import type { SourceName } from '../consumers/sources.ts'

/** The planted bugs: the effect without the position, and events of a key in parallel. */
export type Planted = 'no inbox' | 'plain concurrency'

export interface ConsumerProcessOptions {
  /** Of the database with the effects. */
  readonly url: string
  readonly source: SourceName
  /** Of the broker. */
  readonly address: string
  readonly name: string
  readonly topic: string
  readonly timeoutMs: number
  readonly secret: string
  /** Of what it draws. */
  readonly seed: number
  readonly planted?: Planted | undefined
}

/** What it reports. */
export interface ConsumerNews {
  readonly running: true
  readonly port?: number
}

const CONCURRENCY = 6
/** Before the effect or behind it, of so many events one fails, each time that it is tried. */
const FAILS = 0.004
const BACKOFF = { first: 10, longest: 300 }
/** No event is given up: each gets through in the end. */
const ATTEMPTS = 100_000
const OWN_TTL_MS = 2000

const given = JSON.parse(process.argv[2] as string) as ConsumerProcessOptions
const { url, source, address, name, topic, timeoutMs, secret, seed, planted } = given
const client = openClient('pg', url, { poolSize: CONCURRENCY + 3, application: 'consumer' })
const lockstep = client.lockstep

const chance = random(seed, 'failures')
const failAtTimes = (): void => {
  if (planted !== 'plain concurrency' && chance.chance(FAILS)) throw new Error('as intended')
}
const handler: EventHandler = async ({ key, seq, id }, tx) => {
  failAtTimes()
  await tx.query(INSERT_EFFECT, [key, seq, id])
  failAtTimes()
}
const handling = { concurrency: CONCURRENCY, timeoutMs }

/** The planted bug: everything counts as new. */
function withoutInbox(of: Lockstep): Lockstep {
  const acceptMany = (_: unknown, events: readonly InboxEvent[]): Promise<string[]> =>
    Promise.resolve(events.map(() => 'first'))
  const position = (): Promise<undefined> => Promise.resolve(undefined)
  return {
    schema: of.schema,
    transaction: of.transaction.bind(of),
    leader: of.leader.bind(of),
    inbox: { consumer: () => ({ acceptMany, position }) },
  } as unknown as Lockstep
}

const forBrokers = {
  ...handling,
  lockstep: planted === 'no inbox' ? withoutInbox(lockstep) : lockstep,
  backoffMs: BACKOFF,
} as unknown as BrokerConsumerOptions

/** Gives what ends it, after what it has begun. */
async function run(): Promise<{ readonly port?: number; readonly stop: () => Promise<void> }> {
  if (planted === 'plain concurrency') {
    const stop = new AbortController()
    const sink = async (events: readonly Parameters<EventHandler>[0][]): Promise<void> => {
      await Promise.all(events.map((event) => lockstep.transaction({}, async (tx) => handler(event, tx))))
    }
    const running = lockstep.outbox
      .dispatcher({ name, topics: [topic], ttlMs: OWN_TTL_MS, sink })
      .run({ signal: stop.signal })
    return { stop: () => (stop.abort(), running) }
  }
  if (source === 'outbox') {
    const options = { ...handling, topics: [topic], ttlMs: OWN_TTL_MS, backoffMs: BACKOFF, attempts: ATTEMPTS }
    const consumer = lockstep.consumer(name, options, handler)
    const running = consumer.run()
    return { stop: () => consumer.stop().then(() => running) }
  }
  if (source === 'webhook') {
    const { backoffMs: _, ...options } = forBrokers
    const consumer = webhookConsumer(name, { ...options, secret }, handler)
    const server = createServer((message, response) => {
      const chunks: Buffer[] = []
      message.on('data', (chunk: Buffer) => chunks.push(chunk))
      message.on('end', () => {
        void consumer
          .receive(message.headers, Buffer.concat(chunks))
          .then(({ status, headers, body }) => response.writeHead(status, { ...headers }).end(body))
      })
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const stop = async (): Promise<void> => {
      server.close()
      await consumer.stop()
    }
    return { port: (server.address() as AddressInfo).port, stop }
  }
  const consumer = await consumedBrokers[source].open(address, name, topic, forBrokers, handler)
  const running = consumer.run()
  running.catch((error: unknown) => {
    process.stderr.write(`consumer of ${source}: ${String(error)}\n`)
    process.exit(1)
  })
  const stop = async (): Promise<void> => {
    await consumer.stop()
    await running
    await consumer.end?.()
  }
  return { stop }
}

const { port, stop } = await run()
process.on('message', () => {
  void stop()
    .then(() => client.close())
    .then(
      () => process.exit(0),
      () => process.exit(1),
    )
})
process.send?.({ running: true, ...(port === undefined ? {} : { port }) } satisfies ConsumerNews)
