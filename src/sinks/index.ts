/**
 * Sinks: where events go, and how the order is held there.
 *
 * **The promise.** At the broker, a stream's events stand in the order of their numbers. What a dispatcher sends late, because it was
 * paused while another took its shard over, does not come behind what is newer: the broker itself keeps it out wherever it can, and
 * where it cannot, every message says its number, id and fence, and the inbox drops it.
 *
 * **S1 One contract.** A sink gets a batch in order and says of each event: sent, refused or unknown. Streams are sent in parallel; of a
 * stream, nothing is sent after the first event that was not. `sent` means that the broker has confirmed it as durable as it ever
 * makes it. `refused` is the broker's word about this event, and will be the same tomorrow. Everything else is unknown: silence, a lost
 * connection, a broker that is down or busy. What is unknown is sent again, and comes to the same place (S2) or twice (S3).
 *
 * **S2 The guard.** Redis, JetStream and PostgreSQL take #7 only right behind #6: what comes again is known by its id and counts as
 * sent, what comes too late finds its place taken, what would leave a gap is refused. A guard knows nothing of a stream that is empty
 * at the broker: by default it begins with 1, and `start` says where else it may.
 *
 * **S3 Without a guard.** RabbitMQ, webhooks and Kafka without transactions take what comes. One message of a stream is in progress at a
 * time, so the first delivery of each number is in order; one that was unknown may be there twice. Kafka's transactions keep out a
 * dispatcher that was paused: one transactional id for each shard, and the newer owner fences the older one.
 *
 * **S4 Nothing hangs.** Every question to a broker has its time (`timeoutMs`); after that its answer is unknown, whatever comes later.
 * `close()` lets what is in progress end, and sends nothing more. The client belongs to the code that made it: a sink never closes it, unless
 * it made it itself.
 *
 * **S5 The way back.** Topic, key, number, id, fence and history travel in headers of the same names everywhere (`message.ts`), and
 * `readMessage()` turns a message into what the inbox takes.
 */
export { HEADERS, messageHeaders, readMessage, type ReceivedEvent } from './message.ts'
export {
  type BatchContext,
  byStream,
  ConcurrentStreams,
  type ConcurrentStreamsOptions,
  type Delivery,
  EventRefusedError,
  perEvent,
  type SendOne,
  type Sink,
} from '../outbox/index.ts'
