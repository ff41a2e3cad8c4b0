/**
 * Transactions that lock first.
 *
 * **The promise.** Between holders of the same key there is no lost update and no serialization failure, and no lock outlives
 * its holder.
 *
 * **I1 Declared.** Locks stand in the options, so they are granted before the first read. There is no `tx.lock()` that could come
 * after one.
 *
 * **I2 Lock before snapshot.** At READ COMMITTED each statement has its own snapshot: BEGIN and the locks go in one message, what
 * follows sees what the last holder committed. At REPEATABLE READ and SERIALIZABLE the first statement takes the snapshot for
 * the whole transaction, even if that statement is the lock itself and then waits: the *hand-over* (see transactions.sql.ts)
 * holds the lock across the border between a first transaction that waits and a second that reads. The isolation level is always
 * stated: the server's default may be another.
 *
 * **States of an attempt.** `queued` in this process → `connected` → `open` (locks granted) → `ended`. Up to `open` every failure
 * ends with nothing held: a rolled-back transaction, or a destroyed connection, whose session the server ends. From `open` on the
 * caller's function runs. When it throws: ROLLBACK. When it returns: COMMIT, and then one of
 * - COMMIT is confirmed: done.
 * - COMMIT is answered with ROLLBACK: a failed statement's error was swallowed. The server reports no error; we do.
 * - the server answers with an error (a deferred constraint, 40001): rolled back.
 * - no answer: *uncertain*. The transaction's id came with the opening message, before COMMIT was sent; another connection asks the
 *   server for its fate, in the same incarnation only. Still in progress: that session is terminated first, and asked again.
 *   Committed: success. Aborted: the attempt failed. No certain answer: `CommitOutcomeUnknown`, never a blind retry.
 *
 * **Retry** on 40001, 40P01 and a lost connection, told by SQLSTATE, errno or the connection's end event, never by text. Each
 * attempt starts from the beginning: queue, connection, locks.
 *
 * **The claim's border.** SERIALIZABLE transactions under *different* keys can still collide, for example on a small table that
 * both read by sequential scan. Then they are retried like any other.
 *
 * **Nesting.** A transaction inside a transaction is a savepoint of it when its locks are held and its isolation is the same;
 * everything else is refused: it would wait for the code that it is called from.
 *
 * **Round trips.** Two on top of the caller's own statements: the opening message and COMMIT. A READ COMMITTED caller that finds
 * its lock taken by another process has a third: the one in which it waits.
 */
export { type JoinOptions, joinTransaction } from './join.ts'
export {
  type Enqueuing,
  type EventMap,
  type EventOf,
  type EventToEnqueue,
  nameOf,
  type PreparedEvent,
  type Stream,
  type StreamNumbers,
} from './enqueuing.ts'
export type { Grounds } from './grounds.ts'
export { isInsideTransaction, outsideTransactions } from './nesting.ts'
export { tellsOfLostConnection } from './retry.ts'
export {
  checkWaitMs,
  planDefaults,
  planTransaction,
  type RetryOptions,
  type Strategy,
  type TransactionDefaults,
  type TransactionOptions,
  type TransactionPlan,
} from './options.ts'
export { queryWithOwnValues, readText } from './ownStatements.ts'
export { runTransaction } from './run.ts'
export { Stay } from './stay.ts'
export { abandon, isUndone, rootOf, type Transaction } from './transaction.ts'
export type { Isolation } from './transactions.sql.ts'
