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
 * - the check before COMMIT fails: other code had ended the transaction. Nothing more is run.
 * - the server answers with an error (a deferred constraint, 40001): rolled back.
 * - no answer: *uncertain*. The transaction's id came with the opening message, before COMMIT was sent; another connection asks the
 *   server for its outcome, in the same server epoch only. Still in progress: that session is terminated first, and asked again.
 *   Committed: success. Aborted: the attempt failed. No certain answer: `CommitOutcomeUnknownError`, never a blind retry.
 *
 * **The wait budget.** `waitMs` and `signal` bound everything up to `open`, and so does each single answer: a message whose answer does
 * not come is given up with the budget, at the latest. Outcomes then:
 * - there is budget left: the connection is destroyed, and the next one is tried. A silent connection gets a part of the budget only.
 * - the budget is over, or the caller has gone: the caller has its error at once. The connection is left behind: an answer that comes after
 *   all is rolled back and the connection released; without one it is destroyed. What the server granted meanwhile ends with either; on a
 *   silent network when the server notices.
 * - the pool has no connection to give: retried where the server cannot be reached, within the same budget; final where all are in use or
 *   the server rejects us.
 *
 * **Retry** on 40001, 40P01 and a lost connection, recognized by SQLSTATE, errno or the connection's end event, never by text. Each
 * attempt starts from the beginning: queue, connection, locks.
 *
 * **Limits.** SERIALIZABLE transactions under *different* keys can still collide, for example on a small table that both read by sequential
 * scan. Then they are retried like any other.
 *
 * **I6 Nesting is explicit.** `tx.transaction()` is a savepoint of its transaction, if that one holds its locks and has its isolation.
 * `lockstep.transaction()` in the async context of an open transaction of the same Lockstep is refused, with both ways out: `tx`, or
 * `lockstep.detached(fn)`. The context alone proves nothing: a job queue that requests share runs the job of one in the context of
 * another, which may roll back. In the context of another Lockstep it runs, unless that context holds one of its locks on the same
 * database, or every connection of its pool: then it would wait for itself. A context ends with its transaction.
 *
 * **Tried before trusted.** Some engines accept advisory locks and ignore them, and some routes lead to several servers. Before the first
 * transaction two connections try it, once for each server and route (see serverCheck.ts); where locks do not exclude, every call fails.
 *
 * **Scopes.** One connection, a stack of open scopes: the transaction, savepoints of it, and what a client began with BEGIN, which is a
 * savepoint, too. A statement belongs to the scope of the tx or the client that it was sent through. It is sent while that is the
 * innermost one. While another is open inside, it would become a part of that, and be undone with it: so it waits for its turn, for
 * the transaction's `waitMs` at most, because what it waits for may wait for it. Called from inside of what it would wait for, it is
 * refused at once. A lost connection, and the end of the transaction, refuse all that wait.
 *
 * **The client.** `tx.client` is a virtual client: BEGIN on it opens a savepoint, COMMIT releases it, ROLLBACK rolls it back. What else
 * begins or ends a transaction is refused before it is sent. A COMMIT in which a statement had failed is an error, and rolled back.
 * What a client has begun and not ended when the function returns takes the transaction with it, as a savepoint does.
 *
 * **The check.** What reaches the server past all that cannot be kept from ending the transaction; it can be kept from looking
 * committed. The opening message brings the transaction's mark: its id, or with `retry: false` the time at which it began. Where the
 * client was in the caller's hands, a statement in the message of COMMIT, before everything else in it, fails unless the mark is still the
 * transaction's own. Then nothing of that message is run, and the call fails with `TransactionEndedEarlyError`, never retried. A rollback
 * asks the same. Without the client nothing can have ended it: through `tx.query()` goes one statement at a time, whose first words are
 * looked at, and inside a transaction block CALL, DO and functions cannot commit.
 *
 * **In doubt.** A statement that fails without a SQLSTATE has failed in the driver: the server may have executed it, or may be at it.
 * Unless the driver never sent it, nothing more is sent and nothing is committed, savepoint or not; the session is ended.
 *
 * **Parts.** The core has what every transaction needs: BEGIN, the locks, the server epoch, the transaction's id, COMMIT. Everything optional
 * is a part, in a module above this one. A part imports the types of part.ts and plannedPart.ts, and one line in src/parts.ts registers it.
 * No file in here names a part. What a part can do, in the order in which it happens:
 * - It adds methods to `tx`, once for the process, and installs its hooks in each new Lockstep. If it throws there, `new Lockstep()` throws.
 * - It owns an option (`planner`). The core calls it while the call is planned, if the option was given. It checks the value and throws
 *   before anything is sent, or returns its `PlannedPart`: what it does in this call. `plan.parts` lists them.
 * - It gives a call another source of connections (`plan.source`), for example one whose session holds the locks already. The core asks it to
 *   release them before the call waits for anything.
 * - It runs `around` all attempts, with the same plan or another. What it throws, the caller gets; nothing is open then.
 * - It adds locks, which are taken after the caller's, and SQL of the opening message: statements that read under the locks before the
 *   snapshot of a hand-over, statements and columns of the row that reports the locks as granted. Where its SQL fails, the opening fails,
 *   with nothing held. A call with such columns is sent as text; without, as the same prepared statements as a call without parts.
 * - It reads the answers (`accept`), once all locks are granted. What it throws fails the opening as well.
 * - It explains an error with which a statement or the call failed (`explain`): the caller gets what it returns.
 * - It keeps work for COMMIT (`KeptWork`), the savepoint's own until that is released. Its statements are sent in the message of COMMIT, after
 *   those of `queryAtCommit`: where one fails, the transaction is rolled back. After COMMIT it is called back,
 *   also where the answer was lost, unless the transaction turns out to be rolled back.
 * A call without parts pays one check of a length in each of these places.
 *
 * **Round trips.** Two on top of the caller's own statements: the opening message and COMMIT. A caller that finds its lock
 * taken by another process has a third: the one in which it waits.
 */
export { ambientPool, type PoolOptions } from './ambientPool.ts'
export { checkTransaction, ownerOf, wrapCallersClient, writeInCallersTransaction } from './callersClient.ts'
export { type CheckedJoin, type JoinOptions, joinTransaction } from './join.ts'
export type { LockstepContext } from './lockstepContext.ts'
export { isInsideTransaction } from './frames.ts'
export { detached, outsideTransactions, refuseInside } from './nesting.ts'
export { reportsLostConnection } from './retry.ts'
export {
  type CheckedTransaction,
  checkWaitMs,
  planDefaults,
  planTransaction,
  TRANSACTION_OPTIONS,
  type TransactionDefaults,
  type TransactionOptions,
  type TransactionPlan,
  withLocks,
} from './options.ts'
export type { RetryOptions, RetryPause } from './retryOptions.ts'
export { queryWithOwnValues, readText } from './ownStatements.ts'
export { runTransaction } from './run.ts'
export { ServerCheck } from './serverCheck.ts'
export { checkout, withinBudget } from './connections.ts'
export type { ConnectionSource } from './connectionSource.ts'
export type { LeaseAdmission, LeaseMode, LeaseAdmitter, Part, PartHooks, PartSetup } from './part.ts'
export { PartRegistry } from './partRegistry.ts'
export type { CallToPlan, KeptWork, PlannedPart, Planner } from './plannedPart.ts'
export { abandon, belongsTo, isUndone, onEndOf, OpenTransaction, rootOf } from './transaction.ts'
export {
  NESTED_ONCE_OPTIONS,
  type NestedOnceOptions,
  type NestedOptions,
  type OnceResult,
  type Transaction,
  type Transactor,
} from './transactionInterface.ts'
export { type Isolation, readsFresh } from './isolation.ts'
