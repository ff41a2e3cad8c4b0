/**
 * Consumers: the effect of every event exactly once, in order, keys in parallel.
 *
 * **The promise.** Of a stream, topic and key, a consumer handles every number once, in order. The effect of the handler in its transaction
 * exists exactly once, however often the event is delivered, and to however many processes. Keys are handled in parallel. A stream that
 * cannot continue stops alone.
 *
 * **C1 One transaction.** The position of the consumer and the effect are committed together (src/inbox). The source of the event, a
 * dispatcher of the same database or a broker, only decides what comes next. It is never trusted to know what was handled.
 *
 * **C2 Shared transactions.** Events of many keys share a transaction: one COMMIT and one query to the inbox for all of them. If it fails
 * because of an event, it rolls back. It is repeated with halves of the streams, then with halves of the events of one stream, until the
 * failing event is alone. A failure of the server or of the network blames no event.
 *
 * **C3 Limits.** At most `concurrency` transactions are open, at most `limitBy.concurrency` of one tenant, and at most one with events of a
 * stream. The streams of a batch are divided among lanes, and a lane has one transaction at a time.
 *
 * **C4 Slow transactions.** A transaction that takes longer than `slowAfterMs` continues, and its streams are answered as slow: the
 * dispatcher parks them and continues with the others. When their events come again, they wait for that transaction. If another process has
 * their shard by then, the inbox makes the second transaction wait, and it finds duplicates.
 *
 * **The database itself** (consumer.ts): `lockstep.consumer()` is a dispatcher whose sink runs the handler. Ownership, fences, parked streams,
 * dead letters, retention and every command of an operator are the outbox's own.
 */
export { Applier, type ApplyContext } from './applier.ts'
export { type Consumer, type ConsumerDependencies, makeConsumer } from './consumer.ts'
export { Consumers, type ConsumerStatus, type ListConsumersOptions } from './consumerList.ts'
export type { ConsumerOptions, HandlingOptions, LimitBy } from './consumerOptions.ts'
export type { ConsumedEvent, ConsumedEventOf, ConsumedEvents, EventHandler, ListHandler } from './handler.ts'
export {
  BROKER_CONSUMER_OPTIONS,
  type BrokerConsumer,
  brokerConsumer,
  type BrokerConsumerOptions,
  type ConsumerGap,
  type ConsumingLockstep,
  type Intake,
  openWindow,
  type Source,
} from './brokerConsumer.ts'
export type { Message } from './message.ts'
export type { StoppedKey } from './window.ts'
export { type EventStream, startOf, type StreamStart, type StreamStartOption } from './streamStart.ts'
