import type { BatchContext } from '../outbox/index.ts'
import { onAbort } from '../postgres/index.ts'
import { withTimeout } from './withTimeout.ts'
import { chunksOf, messagesOf, type ReadyEvent } from './kafkaBatch.ts'
import type { KafkaTransaction, KafkaTransactionalProducer } from './kafkaClient.ts'

export interface TransactionsPlan {
  readonly make: (transactionalId: string) => KafkaTransactionalProducer
  readonly prefix: string
  readonly maxMessageBytes: number
  readonly timeoutMs: number
}

/** Why nothing more may be begun under this context. */
export function overFor({ signal, owned }: BatchContext): string | undefined {
  return signal.aborted || owned?.() === false ? 'the shard was lost' : undefined
}

/**
 * Transactions, with a producer for each shard, whose transactional id is the shard's: Kafka lets only the newest producer of an id
 * write. To become the newest is to fence the one before, so a dispatcher that was paused could fence its successor by opening
 * a producer. Hence the order: the producer is opened, **then** it is made sure that the shard is still ours, and only then anything
 * is sent. A later owner of the shard opens its producer later, and fences ours. An owner that was fenced by a late one opens
 * another: the late one sends nothing, as it finds the shard lost.
 *
 * A producer that failed in any way is given up: the next one's opening ends the transaction that was left.
 */
export class KafkaTransactions {
  readonly #plan: TransactionsPlan
  readonly #lanes = new Map<string, Lane>()
  readonly #leaving = new Set<Promise<unknown>>()

  constructor(plan: TransactionsPlan) {
    this.#plan = plan
  }

  /** One transaction with all of these. Throws where it is not certain that it was committed. */
  async commit(context: BatchContext, events: readonly ReadyEvent[]): Promise<void> {
    const id = `${this.#plan.prefix}-${context.dispatcher}-${context.shard}`
    let lane = this.#lanes.get(id)
    if (lane === undefined)
      this.#lanes.set(id, (lane = { fence: -1n, turn: Promise.resolve(), producer: undefined, forget: undefined }))
    const mine = lane
    const done = lane.turn.then(() => this.#commit(id, mine, context, events))
    lane.turn = done.catch(() => undefined)
    await done
  }

  /** Ends the producers, which are the sink's own. */
  async close(): Promise<void> {
    const lanes = [...this.#lanes.values()]
    await Promise.all(lanes.map(({ turn }) => turn))
    for (const lane of lanes) this.#giveUp(lane, undefined)
    await Promise.all(this.#leaving)
  }

  async #commit(id: string, lane: Lane, context: BatchContext, events: readonly ReadyEvent[]): Promise<void> {
    if (context.fence < lane.fence) throw new Error('a later owner of the shard sends in this very process')
    if (context.fence > lane.fence) this.#begin(lane, context)
    assertOwned(context)
    const deadline = performance.now() + this.#plan.timeoutMs
    const soon = <T>(asked: Promise<T>): Promise<T> => withTimeout(asked, deadline - performance.now())
    let transaction: KafkaTransaction | undefined
    try {
      const producer = (lane.producer ??= open(this.#plan.make(id)))
      await soon(producer.connected)
      transaction = await soon(producer.client.transaction())
      // Only now: some clients take the id when they connect, others with their first transaction.
      assertOwned(context)
      for (const chunk of chunksOf(events, this.#plan.maxMessageBytes)) {
        await soon(transaction.sendBatch({ topicMessages: messagesOf(chunk) }))
      }
      await soon(transaction.commit())
    } catch (error) {
      this.#giveUp(lane, transaction)
      throw error
    }
  }

  /** The shard is ours again. */
  #begin(lane: Lane, { fence, signal }: BatchContext): void {
    this.#giveUp(lane, undefined)
    lane.fence = fence
    const lost = (): void => {
      lane.turn = lane.turn.then(() => {
        if (lane.fence === fence) this.#giveUp(lane, undefined)
      })
    }
    lane.forget?.()
    lane.forget = onAbort(signal, lost)
  }

  #giveUp(lane: Lane, transaction: KafkaTransaction | undefined): void {
    const { producer } = lane
    if (producer === undefined) return
    lane.producer = undefined
    const leaving = this.#leave(producer, transaction).finally(() => this.#leaving.delete(leaving))
    this.#leaving.add(leaving)
  }

  /** Ended, so that readers of what is committed need not wait for its time to run out. If it was fenced, Kafka has ended it. */
  async #leave({ client, connected }: OpenProducer, transaction: KafkaTransaction | undefined): Promise<void> {
    const { timeoutMs } = this.#plan
    const quietly = (asked: Promise<unknown>): Promise<unknown> => withTimeout(asked, timeoutMs).catch(() => undefined)
    if (transaction !== undefined) await quietly(attempt(() => transaction.abort()))
    // One that connects after it was disconnected would stay.
    const ended = connected.catch(() => undefined).then(() => client.disconnect())
    await quietly(ended)
  }
}

interface OpenProducer {
  readonly client: KafkaTransactionalProducer
  readonly connected: Promise<void>
}

interface Lane {
  fence: bigint
  /** One transaction at a time. */
  turn: Promise<unknown>
  producer: OpenProducer | undefined
  /** Stops listening to the shard's signal. */
  forget: (() => void) | undefined
}

function open(client: KafkaTransactionalProducer): OpenProducer {
  return { client, connected: attempt(() => client.connect()) }
}

/** A client that throws at once is one that rejects. */
async function attempt<T>(ask: () => Promise<T>): Promise<T> {
  return ask()
}

function assertOwned(context: BatchContext): void {
  const over = overFor(context)
  if (over !== undefined) throw new Error(over)
}
