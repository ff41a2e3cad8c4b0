import { randomBytes } from 'node:crypto'
import type { Sink } from 'pg-lockstep'
import { webhookSink } from 'pg-lockstep/webhook'
import { consumedBrokers } from '../../../tools/brokers/consumed.ts'
import type { PostgresServer } from '../../../tools/server/postgres.ts'
import { startWebhookFront } from './webhookFront.ts'

/** What consumers get their events from. */
export const SOURCES = ['outbox', 'redis', 'nats', 'rabbitmq', 'kafka', 'webhook'] as const
export type SourceName = (typeof SOURCES)[number]

/** A source that runs, and what brings events to it. */
export interface RunningSource {
  readonly address: string
  /** Left out where consumers read the outbox itself. */
  readonly sink?: Sink
  readonly secret: string
  /** `kill -9`, or as near to it as it goes. */
  kill(): Promise<void>
  start(): Promise<void>
  stop(): Promise<void>
}

const TIMEOUT_MS = 2000

/** `ports`: of the processes that receive webhooks. */
export async function startSource(
  name: SourceName,
  topic: string,
  server: PostgresServer,
  ports: () => number | undefined,
): Promise<RunningSource> {
  const secret = `whsec_${randomBytes(32).toString('base64')}`
  if (name === 'outbox') {
    const nothing = (): Promise<void> => Promise.resolve()
    return { address: '', secret, kill: () => server.crash(), start: () => server.start(), stop: nothing }
  }
  if (name === 'webhook') {
    const front = await startWebhookFront(ports)
    const sink = webhookSink({ url: `http://${front.address}/`, secret, concurrency: 32, timeoutMs: TIMEOUT_MS })
    const stop = async (): Promise<void> => {
      await sink.close?.()
      await front.stop()
    }
    return { ...front, secret, sink, stop }
  }
  const consumed = consumedBrokers[name]
  const running = await consumed.broker.run()
  await consumed.prepare?.(running.address, topic)
  const connected = await consumed.broker.connect(running.address, { timeoutMs: TIMEOUT_MS })
  return {
    address: running.address,
    secret,
    sink: connected.sink,
    kill: () => running.kill(),
    start: () => running.start(),
    async stop() {
      await connected.end()
      await running.stop()
    },
  }
}
