/**
 * The inbox: the consumer's side of strict order.
 *
 * **The promise.** Of a stream, topic and key, a consumer handles every number once, in order. The effect of an event in its transaction
 * exists exactly once, however often the event is delivered, to however many processes at once. A missing number is reported before the next
 * one is handled. So is a history that differs from the consumed one.
 *
 * **N1 One row.** For each consumer and stream there is one row: the last number and its id. It is moved in the transaction in which the
 * event has its effect. Both are committed, or neither is: after a rollback, a crash or a lost connection the row is unchanged, and the
 * event, which was not acknowledged, is delivered again.
 *
 * **N2 The verdict.** The row has `last`. Number last + 1: `first`, and the row moves; or `tombstone`, if the producer gave the number up:
 * the row moves, and nothing is handled. Number ≤ last: `duplicate`. Number = last with another id: diverged. Beyond last + 1: a gap, and
 * nothing moves. Generations grow with the numbers of a stream. So a number ≤ last of a later generation than the last one was assigned
 * again, after the producer’s server had lost events: diverged. The same holds for last + 1 of an earlier generation: a replaced server sent
 * it.
 *
 * **N3 One at a time.** The accepting transaction locks the row until its end. The next transaction waits, and judges by what was committed.
 * So it reports a duplicate only after the first delivery has committed, and a gap only after the event before has failed. If two
 * transactions begin a stream at once, they meet at the row’s unique key: one waits for the other, and neither reports a violation. At
 * REPEATABLE READ and SERIALIZABLE no transaction judges by a snapshot that is older than the row: that is 40001, which `transaction()`
 * retries.
 *
 * **N4 The beginning.** A stream begins with 1, or with a number that the consumer names. Exactly that number is the first, and smaller ones
 * are duplicates. This applies only until the row exists. A gap writes no row, even if the caller catches the error and commits.
 *
 * **N5 Many at once** get the same verdicts as one after the other. Rows are locked in the order of the streams’ names, whatever the order
 * of the events. If a process stops while it holds rows, the server ends its session after `idleMs`.
 *
 * **Limits.** Only the last id is kept. If messages have no generation, or the producer went back without a new one (a storage snapshot),
 * numbers below the last one count as duplicates; the divergence is reported when the number of the last one arrives. A rollback does not
 * undo what a handler does outside the database.
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
