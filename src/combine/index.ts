/**
 * Combine: one hot key, many callers, one transaction.
 *
 * **The promise.** Each call gets the result of its own item, and gets it only after the transaction that holds its effect has
 * committed. No item takes effect twice, and none that was reported as failed takes effect; `CommitOutcomeUnknownError` reports
 * that the outcome is unknown.
 *
 * **How.** Calls on one key wait in a queue in this process. While a batch of that key is in flight, the queue grows; the next batch is
 * all of it, up to `maxBatch`. A batch is one transaction under the key's lock, so a hot key costs one commit for many calls instead
 * of one for each. The batch is closed at the last moment, when the lock is granted and before `run` begins: a call that came while the
 * lock was waited for is in it, and a call that gave up is not.
 *
 * **States of a call.** `waiting` → `taken` → settled. While it waits, its signal, its `waitMs` or a failure to open any
 * transaction can end it; nothing has been done for it then. Once taken it shares the outcome of its batch:
 * - committed: it gets its entry of what `run` returned; an `Error` in the list rejects that caller alone.
 * - failed for a reason of its items (a constraint, something that `run` threw): the batch is **halved**, in order, each half a
 *   transaction of its own, until the failing item is alone and its caller receives the error. A deferred constraint that fails at COMMIT is one such reason.
 * - failed for a reason that no item has caused (40001, 40P01, a lost connection): tried again **whole**, by `transaction()`; a COMMIT whose
 *   answer was lost is looked into there first. When that ends in `RetriesExhaustedError` or `CommitOutcomeUnknownError`, every caller of the
 *   batch gets that error. Halving would only repeat it, and after an unknown COMMIT it could do a thing twice.
 *
 * **What `run` must do** to be free of deadlocks: lock every row that it will touch first, with one `lockRows`. An UPDATE over arrays
 * alone locks in the order of its scan.
 *
 * **Bounds.** `maxBatch` for the transaction; `maxQueue` for the calls that wait for one key, ten times that for all keys together;
 * `waitMs` for each call until its batch begins. Beyond: a typed error, not memory.
 *
 * **Fairness.** After each batch a key releases its connection and asks the pool again, behind the callers that wait there. Callers of one
 * key are served in the order of their calls. Other processes compete for the key’s lock as for any other. If they do, and a process has its
 * next callers ready, its session keeps the lock between a few batches, for 25 ms at most (lockRetention.ts). Handing it over after every
 * batch made four processes half as fast together.
 *
 * **Closing.** `lockstep.close()` refuses new calls and serves those that wait.
 */
export type { Combiners } from './batcher.ts'
export { combine, type Combined, type CombinedCall, type CombineOptions } from './combine.ts'
