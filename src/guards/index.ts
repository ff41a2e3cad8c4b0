/**
 * Guards: tables that can be written only under a lock.
 *
 * **The promise.** A lock binds callers that ask for it. A guard binds all others, too. It ties a table to a key (`Account:{id}`), and for
 * every written row the database checks whether the transaction holds that lock exclusively. In mode `enforce` a write without it fails,
 * whichever program sent it. In mode `observe` it is counted, and samples show who wrote. A guard stops mistakes, not attackers: a role that
 * can write to the table can also state that it holds a lock.
 *
 * **What a transaction states.** The opening message of a transaction with locks also sets `lockstep.held`, a setting that ends with the
 * transaction: the ids of its exclusive locks (`stateHeld` in locks.sql.ts). It is set by the expression that reports the locks as granted,
 * so a lock that was refused is never stated, and there is no other round trip. `join()` adds its locks to what is stated. `lease_guard()`
 * adds the lease, under an id of its own, unless it has several permits. A savepoint that is rolled back takes back what was stated inside of it,
 * as PostgreSQL does with the locks that were taken there. Shared locks are not stated: they exclude no other writer. Keys that the rollout
 * leaves unlocked are not stated.
 *
 * **The trigger.** AFTER, for each row: it sees generated columns and what other triggers made of the row, and ON CONFLICT DO NOTHING fires
 * none. It makes the key of the old and of the new row with the escapes of `key`, hashes it, and looks for the id in `lockstep.held`. That
 * is all where it is found. A key with a NULL in it is no key, and the row passes. TRUNCATE has a trigger of its own, on every partition:
 * no lock covers all keys, so it is never found. A trigger of this kind does not fire where `session_replication_role` is `replica`: what a
 * subscription applies was looked at where it was written.
 *
 * **The slow check.** If the transaction states nothing, `guard_missed()` reads the mode and then the server’s list of locks, because plain
 * SQL can have taken the lock by `lock_id()`. The list is read once for a message, not for each row (guard_listed.sql). What it finds is
 * counted as `listed`.
 *
 * **Counting.** A sequence for each of `unlocked`, `listed` and `refused`. A sequence makes no writer wait for another until its COMMIT, and
 * counts a refusal whose transaction is rolled back. So writes that were rolled back are counted, and after a crash of the server up to 32 more.
 * Samples are rows that writers only insert, one a minute for each application and role.
 *
 * **States.** A guard is a row in `guards`, a function, two triggers and three sequences. `add` makes them in one transaction, and repairs
 * what is missing; `remove` drops them in one transaction. The mode is a column: a change takes effect with the next statement of every
 * session whose snapshot sees it. `list` compares the triggers with the row; so does the doctor.
 *
 * **Failures.** `add` and `remove` wait for transactions that write to the table, for `waitMs` at most; then nothing has changed. Where a
 * column of the key is renamed, every write fails until the guard is added again or removed. Triggers run with the rights of the schema's owner
 * and a search_path of their own: writers need no grant in the schema.
 */
export { checkGuardMode, type GuardMode } from './guardMode.ts'
export {
  type AddGuardOptions,
  type Guard,
  Guards,
  type GuardSample,
  type GuardSamplesOptions,
  type GuardState,
  type RemoveGuardOptions,
  type SetGuardOptions,
  type WhichGuard,
} from './guards.ts'
export { guardsPart } from './guardsPart.ts'
export { keyTemplate, type KeyTemplate } from './keyTemplate.ts'
