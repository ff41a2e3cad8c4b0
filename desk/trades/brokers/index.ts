/**
 * Where trades are published: `--sink` chooses. Each broker is one file, with a connection, a sink of the library, and a reader that books through
 * the inbox. So what comes twice counts once, whichever broker is between.
 */
import type { Desk, SinkName } from '../../desk.ts'
import { localLog, readLocalLog } from '../localLog.ts'
import type { Broker } from './broker.ts'
import { kafka } from './kafka.ts'
import { nats } from './nats.ts'
import { rabbitmq } from './rabbitmq.ts'
import { redis } from './redis.ts'
import { webhook } from './webhook.ts'

export type { Broker } from './broker.ts'
export { receiveWebhook, WEBHOOK_PATH } from './webhook.ts'

/** A table of the same database stands for a broker, so that the desk needs none. */
async function local(desk: Desk): Promise<Broker> {
  return { sink: localLog(desk), read: (signal) => readLocalLog(desk, signal), close: async () => {} }
}

export const BROKERS: Readonly<Record<SinkName, (desk: Desk, url: string) => Promise<Broker>>> = {
  local,
  nats,
  redis,
  rabbitmq,
  webhook,
  kafka,
}
