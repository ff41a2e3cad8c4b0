/**
 * A dispatcher with a real sink, to be stopped in the middle of a batch. It reports every batch to its parent before it is sent and
 * after it was answered. Argument: a JSON object, `SinkProcessOptions`.
 */
import type { Delivery, Sink } from 'pg-lockstep'
import { openClient } from '../client.ts'
import { brokerNamed } from '../sinks/brokers.ts'
import { UNGUARDED } from '../sinks/unguarded.ts'

export interface SinkProcessOptions {
  /** Of the database with the outbox. */
  readonly url: string
  readonly broker: string
  /** Of the broker, as this process reaches it. */
  readonly address: string
  readonly ttlMs: number
  readonly shards: number
  readonly timeoutMs: number
  /** With the planted bug. */
  readonly unguarded: boolean
}

/** What it reports. */
export type SinkNews =
  | { readonly sending: number; readonly events: readonly (readonly [key: string, seq: number])[] }
  | { readonly answered: number; readonly shard: number; readonly answers: readonly string[] }

const options = JSON.parse(process.argv[2] as string) as SinkProcessOptions
const { lockstep } = openClient('pg', options.url, { poolSize: 5, application: 'dispatcher' })

async function connected(): Promise<Sink> {
  const { broker, address, timeoutMs, unguarded } = options
  const plain = unguarded ? UNGUARDED[broker] : undefined
  return plain === undefined ? (await brokerNamed(broker).connect(address, { timeoutMs })).sink : plain(address)
}

const sink = await connected()
let batches = 0
const tell = (news: SinkNews): void => void process.send?.(news)
const kindOf = (answer: Delivery): string => (typeof answer === 'string' ? answer : (Object.keys(answer)[0] as string))

const told: Sink = {
  name: sink.name,
  ...(sink.enforcesFences === undefined ? {} : { enforcesFences: sink.enforcesFences }),
  ...(sink.open === undefined ? {} : { open: () => sink.open?.() as Promise<void> }),
  ...(sink.healthy === undefined ? {} : { healthy: () => sink.healthy?.() as Promise<boolean> }),
  async send(events, context) {
    const sending = ++batches
    tell({ sending, events: events.map(({ key, seq }) => [key, seq]) })
    let answers: readonly Delivery[] | undefined
    try {
      answers = await sink.send(events, context)
      return answers
    } finally {
      tell({ answered: sending, shard: context.shard, answers: answers?.map(kindOf) ?? events.map(() => 'failed') })
    }
  },
}
await lockstep.outbox
  .dispatcher({ sink: told, ttlMs: options.ttlMs, shards: options.shards, batch: 50, backoffMs: { longest: 500 } })
  .run()
