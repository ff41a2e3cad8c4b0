/**
 * The inbox: the consumer's side of strict order.
 *
 * **The promise.** Of a stream, topic and key, a consumer handles every number once, in order: what an event does in its transaction
 * is there exactly once, however often the event is delivered, to however many processes at once. A number that is missing is reported
 * before the next one is handled, and so is a history that is not the one that was consumed.
 *
 * **N1 One row.** For each consumer and stream there is one row: the last number and its id. It is moved in the transaction in which the
 * event has its effect. Both are committed or neither is: a rollback, a crash or a lost connection leaves the row where it was,
 * and the event, which was not acknowledged, comes again.
 *
 * **N2 The verdict.** The row says `last`. Number last + 1: `first`, and the row moves; `tombstone` where the producer gave the number
 * up: the row moves, nothing is handled. Number ≤ last: `duplicate`. Number = last with another id: diverged. Beyond last + 1: a gap,
 * and nothing moves. Generations grow with the numbers of a stream: a number ≤ last of a later generation than the last one was given out
 * again, after the producer's server had lost events: diverged. So is last + 1 of an earlier generation, which a server that was replaced sends.
 *
 * **N3 One at a time.** The transaction that accepts has the row locked until its end. The next one waits and judges by what was committed: a
 * duplicate of what is at work is no duplicate until that has committed, the successor of what is at work is no gap until that has
 * failed. Two that begin a stream at once meet at the row's unique key; one waits for the other, and no violation is seen. At
 * REPEATABLE READ and SERIALIZABLE no transaction judges by a snapshot that is older than the row: that is 40001, which `transaction()` retries.
 *
 * **N4 The beginning.** A stream begins with 1, or with a number that the consumer names: it exactly is the first, smaller ones are
 * duplicates. That counts until there is a row, and never after. A gap writes none, also where the caller catches
 * the error and commits.
 *
 * **N5 Many at once** are judged as one after the other would be. Rows are locked in the order of the streams' names, whatever the order
 * of the events. A process that was stopped with rows in its hands is sent away by the server after `idleMs`.
 *
 * **Its border.** Only the last id is kept. Where messages do not say their generation, or the producer went back without a new one (a storage
 * snapshot), numbers below the last one pass for duplicates; the divergence is reported when the last one's number comes. And what a handler does outside the database is not undone by a rollback.
 *
 * **The verifier** (verify.ts) reads deliveries instead of accepting them, and reports every gap, duplicate, inversion and divergence.
 */
export type { InboxEvent, InboxStream } from './event.ts'
export type { BatchVerdict } from './acceptMany.ts'
export {
  type AcceptManyOptions,
  type AcceptOptions,
  type ContractHandleOptions,
  type HandleOptions,
  Inbox,
  InboxConsumer,
  type InboxTransaction,
  type InboxVerdict,
  type StartAtOptions,
} from './inbox.ts'
export type { InboxPosition, PositionedConsumer, PositionPage, PositionsOptions, StreamPosition } from './positions.ts'
export {
  type Divergence,
  type Duplicate,
  type Findings,
  type Gap,
  type Inversion,
  type SeenEvent,
  type StreamReport,
  StreamVerifier,
  type StreamVerifierOptions,
} from './verify.ts'
