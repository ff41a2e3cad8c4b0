/**
 * The outbox: strict order per stream, append-only.
 *
 * **The promise.** A stream is topic and key. Its events are numbered 1, 2, 3, … without a gap, in the order in which their
 * transactions committed, and they reach the sink in that order: #101 cannot overtake #100, with any number of writers and
 * dispatchers, through rollbacks, crashes, pauses and events that the sink refuses. Nothing is lost; after a crash an event can be sent
 * twice, and the inbox recognizes it by number and id.
 *
 * **O1 Writing.** `tx.enqueue()` only notes the event. Right before COMMIT, in the same message, one function locks the stream, reads
 * its last number on the index and inserts. The lock is held to the end of the transaction, and PostgreSQL makes a commit visible
 * before it releases the locks: so any snapshot that shows #101 shows #100. No counter row, no update: one insert.
 *
 * **O2 Reading.** Transaction ids are not in the order of commits, so a reader cannot read "from id x on". A shard’s cursor is a pair of
 * snapshots. What is visible in `next` and not in `prev` is its window, sorted by id, which within a stream is its order. A window is read
 * in pieces (`after_id`); when it is done, `next` becomes `prev`. A backlog is divided at snapshots that writers record every thousand
 * events. An uncommitted transaction delays only its own streams.
 *
 * **O3 Durable before sent.** With `synchronous_commit = off` a commit is visible before it is on disk. Before a window reaches the
 * sink, the log is flushed past everything that is visible in it. With a synchronous standby it is there as well: a COMMIT that is
 * cancelled while it waits for the standby is visible, too. The flush itself can be cancelled in the same way, and is answered as if it had
 * succeeded: its warning, or a look at the standbys, counts (flushToDisk.ts).
 *
 * **O4 Ownership.** The holder of a shard’s lease owns the shard. Its fence is written into the cursor before the cursor is read; from then
 * on the previous owner cannot move it. Cursors are appended, each with the next version: two owners that move the same one cannot both
 * succeed. What a paused owner still sends, the next owner has sent or will send as well, so first deliveries stay in order. Sinks that
 * check the fence and the number of each event refuse it.
 *
 * **Topics.** A dispatcher has one list of topics, for all its processes, and the database reads by it. A shard is taken under the list; a change of
 * the list writes a new fence into every cursor, so that no cursor is moved under the old list afterwards. It is changed when no process runs
 * under the old one (topics.ts, docs/decisions/0052-topics-of-a-dispatcher.md).
 *
 * **Splitting.** Shards are ranges of buckets, so a shard can be split by copying its cursor: what is delivered of the whole is delivered of each part. It
 * happens for all shards in one transaction, after their owners have released them, with new fences. Parts of a shard whose old owner has not released
 * it are taken when its lease has ended (split.ts, docs/decisions/0058-splitting-shards.md).
 *
 * **O5 Failure.** A refused event stops its stream alone: in one step, it and the stream’s later events are parked, and the cursor moves on.
 * They are tried again in order, with pauses; in the end `block`, `skip` or `deadLetter` applies. A skipped event is sent as a tombstone, so
 * that consumers see no gap. A sink that accepts nothing at all is down: then nothing is read, and no event is blamed. An event with
 * malformed headers, which only the table’s owner can write, is refused before a sink gets it.
 *
 * **Events with a time.** An event with `notBefore` that is not due when it is read, and the later ones of its stream, are parked like those of a
 * stream that waits; the stream is due at the time of the event at its head. So nothing else of the protocol knows it. When the next stream is due is a
 * search in an index, and the reader's timer: also of one that rests or sleeps (docs/decisions/0063-held-events.md).
 *
 * **Slow receivers.** A shard waits for its batch. Where streams have receivers of their own, each has `slowAfterMs` in a batch; one that
 * takes longer is parked as slow, and continues separately at the pace of its receiver. Nothing counts against it. Its event
 * that is in progress is not sent again: the next try takes the answer of the first (ConcurrentStreams).
 *
 * **O7 Retention.** Events are kept in segments, which are emptied as a whole, the oldest first: after the longest time that a registered
 * dispatcher asks for, and when every cursor is past them. Before that, in short steps, the last numbers of their streams are written
 * down. A replay that has not read what goes fails. Whatever a dispatcher reads is sent to it when the reading transaction has ended: a process
 * that has stopped holds neither locks nor a snapshot, in whichever moment.
 *
 * **O8 Waking.** States of a dispatcher: *polling* (no writer rings for it), *listening*, *resting*. It looks at all its shards in one message: again
 * after 2 ms while events come, then less and less often. Polling, at the latest after 180 ms. A commit in the same process wakes it at
 * once. If it has a direct connection and has found nothing for a while, it registers in the database and looks once more: from then on
 * it listens. Writers ring after COMMIT, in a transaction of their own, only while a dispatcher listens. A ring names shards, which are looked at
 * alone; it marks them until a look begins after it. A ring can be lost, and a writer can fail to ring: all shards are looked at after a pause that grows
 * with the time since the last event, up to a minute. Who finds events in every look listens no more. When nothing has happened for twice the
 * ttl, it rests: its leases are not renewed and not trusted, one message a minute asks whether there is anything in any shard. Woken, it holds
 * those leases again that no other process has taken since, with the same fences, before it reads (docs/decisions/0051-bell-after-commit.md).
 *
 * **O9 Crash, failover, restore.** What a shard knows is worth nothing in another server epoch. Its history, a uuid, goes with every
 * call that changes delivery state on its behalf, beside its fence: taking the shard, moving cursors, putting events aside, deleting or giving
 * up parked events, taking a stream out of those that wait. In another history each of them refuses
 * (docs/decisions/0036-history-and-fences.md lists them), and the shard is lost: it has to be taken again, with a new fence. Parked events go by their uuid as well: after an asynchronous failover a
 * number can be another event's. Cursors in the table survive a crash, because their writers had a later transaction id than any in
 * them. On another server or database they mean nothing, and dispatching is refused until an operator has chosen (`rebase`). A dump
 * contains leases and server epochs: so every call compares with the server itself, and a dispatcher that was running is refused as well.
 *
 * **Lost events.** After an asynchronous failover, or a restore to a point in time, numbers that were delivered are assigned again. Every event has
 * the generation in which it was enqueued, which grows with each of these: within a stream it never decreases while the numbers grow. No event is
 * numbered before its server epoch has begun. Sinks that can be asked compare when they append; others deliver it, and the inbox reports it
 * (docs/decisions/0045-generation-of-events.md).
 */
export { checkNumber } from './checkNumber.ts'
export type { Dispatcher, DispatcherRunOptions } from './dispatcher.ts'
export type { Drained, DrainEnding, DrainOptions, LeftToDeliver } from './drain.ts'
export type { BackoffOptions, DispatcherOptions, GiveUp } from './dispatcherOptions.ts'
export { type EventHeaders, type OutboxEvent } from './event.ts'
export {
  type DispatchedStream,
  Outbox,
  type Rebased,
  type RebaseOptions,
  type RetainOptions,
  type StreamHead,
} from './outbox.ts'
export type { FinishImportOptions, Imported, ImportOptions, ImportProgress } from './importTable.ts'
export type { OperatorOptions } from './operatorOptions.ts'
export { outboxPart } from './outboxPart.ts'
export type {
  DeadLetter,
  DeadLetterOptions,
  DeadLetterPage,
  Redriven,
  RedriveOptions,
  WaitingSelection,
} from './redrive.ts'
export type { EventPage, EventsOptions, StoredEvent } from './storedEvents.ts'
export type { Replayed, ReplayOptions } from './replay.ts'
export type { SplitOptions, SplitShards } from './split.ts'
export type {
  DispatcherLag,
  DispatcherStatus,
  OutboxStatus,
  ParkedOptions,
  ParkedStream,
  SegmentStatus,
  ShardStatus,
} from './status.ts'
export { type BatchContext, byStream, type Delivery, EventRefusedError, type Sink, type SinkFunction } from './sink.ts'
export { perEvent, type PerEventOptions } from './perEvent.ts'
export { ConcurrentStreams, type ConcurrentStreamsOptions, type SendOne } from './concurrentStreams.ts'
export type { Retained } from './retain.ts'
export type { EventMap, EventOf, EventToEnqueue, Stream } from '../events/index.ts'
