import { setTimeout as sleep } from 'node:timers/promises'
import { type BatchContext, type Delivery, HistoryDivergedError, type OutboxEvent } from 'pg-lockstep'
import { exactlyOnce } from '../checkers/exactlyOnce.ts'
import { keyOrder } from '../checkers/keyOrder.ts'
import { nothingLost } from '../checkers/nothingLost.ts'
import { Broker, type BrokerEvent, type Polled, type Question } from './broker.ts'
import { FIND_PENDING, FOUND, INSERT_000, LOCK_STREAM, MARK_SENT, RECEIVE, TABLES } from './outbox.sql.ts'
import { byHand, type Operation, type Scenario, type WorkerTools } from './scenario.ts'

const STREAMS = [0, 1, 2, 3]
const ROLLED_BACK = 0.15
const nameOf = (round: number, stream: number): string => `portfolio ${round}.${stream}`
const topicOf = (round: number): string => `prove-${round}`

/** A writer that thinks better of it: what it wrote must not arrive. */
function maybeThinkBetter(operation: Operation): void {
  if (operation.random.chance(ROLLED_BACK)) throw new Error('ROLLED BACK on purpose')
}

/** Takes from the broker what is not acknowledged, until the round is over: again after an error, and at the same time as others. */
async function consume(
  hands: WorkerTools,
  signal: AbortSignal,
  handle: (event: BrokerEvent) => Promise<void>,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const polled = await hands.ask<Polled | undefined>('outbox', { poll: true } satisfies Question)
      if (polled === undefined) {
        await sleep(10)
        continue
      }
      try {
        for (const event of polled.events) await handle(event)
      } catch (error) {
        // An operator has to decide: the other streams continue.
        if (error instanceof HistoryDivergedError)
          await hands.ask('outbox', { diverged: polled.stream } satisfies Question)
        throw error
      }
      await hands.ask('outbox', { ack: { stream: polled.stream, upTo: polled.upTo } } satisfies Question)
    } catch {
      // The broker gives it out again.
      await sleep(20)
    }
  }
}

/** Document 000's dispatcher: finds what is pending, sends it, marks it. */
async function dispatch000(hands: WorkerTools, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      // code: naive
      const sent = await byHand(hands.pool, async (client) => {
        const { rows } = await client.query<{ id: string; stream: string; seq: number; op: string }>(FIND_PENDING, [
          hands.round,
        ])
        for (const { id, stream, seq, op } of rows) {
          await hands.ask('outbox', { send: [{ key: stream, seq, id, op }] } satisfies Question)
        }
        await client.query(MARK_SENT, [rows.map(({ id }) => id)])
        return rows.length
      })
      // code: end
      if (sent === 0) await sleep(10)
    } catch {
      await sleep(20)
    }
  }
}

/** Ours: what the broker does not take yet is sent again, and nothing of its stream overtakes it. */
async function deliver(
  hands: WorkerTools,
  events: readonly OutboxEvent[],
  { shard, fence, beside = false }: BatchContext,
): Promise<Delivery[]> {
  const send = events.map(({ key, seq, id, payload, generation, position }) => ({
    key,
    seq,
    id,
    op: (payload as { op: string }).op,
    generation,
    position,
  }))
  const from = { shard, fence: String(fence), beside }
  const taken = await hands.ask<boolean[]>('outbox', { send, from } satisfies Question)
  const waiting = new Set<string>()
  return events.map(({ key, seq }, place): Delivery => {
    if (taken[place] === true) return 'sent'
    if (waiting.has(key)) return { unknown: 'one before it was not taken' }
    waiting.add(key)
    return { refused: `the broker does not take #${seq} yet` }
  })
}

/** Events that go out in order, arrive in order, and count once. */
export const outbox: Scenario = {
  name: 'outbox',
  title: 'Events in order, from the outbox to the inbox',
  forms: {
    naive: 'pending rows under a try-lock of their stream, sent and marked; a consumer that counts what comes',
    lockstep: 'tx.enqueue(), lockstep.outbox.dispatcher() in every process, a consumer of lockstep.inbox',
  },
  lanes: 2,
  checkers: [keyOrder({ repeats: true }), nothingLost, exactlyOnce],
  tables: TABLES,
  prepare: () => undefined,
  play: {
    naive: (hands) => ({
      keyFor: (random) => nameOf(hands.round, random.pick(STREAMS)),
      operate: (operation) =>
        byHand(hands.pool, async (client) => {
          await client.query(LOCK_STREAM, [operation.key])
          const { rows } = await client.query<{ seq: number }>(INSERT_000, [hands.round, operation.key, operation.id])
          operation.tell('wrote', { value: `#${rows[0]?.seq}` })
          maybeThinkBetter(operation)
          return undefined
        }),
      beside: async (signal) => {
        await Promise.all([
          dispatch000(hands, signal),
          consume(hands, signal, async ({ key: stream, op }) => {
            await hands.pool.query(RECEIVE, [hands.round, stream, op])
          }),
        ])
      },
    }),
    lockstep: (hands) => ({
      keyFor: (random) => nameOf(hands.round, random.pick(STREAMS)),
      // code: lockstep
      operate: (operation) =>
        hands.lockstep.transaction({}, async (tx) => {
          await tx.enqueue({ topic: topicOf(hands.round), key: operation.key, payload: { op: operation.id } })
          operation.tell('wrote')
          maybeThinkBetter(operation)
          return undefined
        }),
      // code: end
      beside: async (signal) => {
        const { lockstep } = hands
        const consumer = lockstep.inbox.consumer('prove')
        // code: lockstep
        const dispatcher = lockstep.outbox.dispatcher({
          shards: 4,
          ttlMs: hands.ttlMs,
          attempts: 50,
          backoffMs: { first: 50, longest: 500 },
          sink: (events, context) => deliver(hands, events, context),
        })
        // code: end
        await Promise.all([
          dispatcher.run({ signal }),
          consume(hands, signal, async ({ key, seq, id, op, generation = 0 }) => {
            await consumer.handle({ topic: topicOf(hands.round), key, seq, id, generation }, {}, async (tx) => {
              await tx.query(RECEIVE, [hands.round, key, op])
            })
          }),
        ])
      },
    }),
  },
  outside: () => {
    const broker = new Broker()
    return (question, take) => broker.answer(question as Question, take)
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}
