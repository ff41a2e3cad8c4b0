/**
 * Rollout: which keys are locked or leased, observed or left alone.
 *
 * **The promise.** Locking can be switched on key by key in a running system, and off again. While a key is observed nothing waits for it,
 * and an event reports each call that would have waited, and for how long.
 *
 * **How.** The part of transactions (rolloutPart.ts) decides for each key of a call, before anything is sent. The rules come from the
 * options of a Lockstep, or from the database, where all processes follow them. Rules from the database are read when a call needs them
 * and are no longer young, so a change takes effect in all processes within three seconds.
 *
 * **Observed keys.** A call marks each of its observed keys with a shadow: an advisory lock of another id, in shared mode, so that no
 * session ever waits for it. Before that, in the same message, it looks who else has marked it: an exclusive try in a savepoint that is
 * rolled back at once. A caller that finds a mark would have waited. `ShadowWatch` then looks how long.
 *
 * **Leases.** The part decides for each lease of a caller as well, by the same rule (`LeaseAdmission`). How leases are observed is in leases/:
 * observedLeases.ts and nonExclusiveLease.ts. Leaders and dispatchers hold their leases whatever the rules say.
 *
 * **Switching back.** `switchBack` puts a prefix back to `observe` where locking does harm: a wait that is too long, too many failures, duplicates
 * that locking should have prevented, or calls that take longer than those that were observed. Each process judges by what it sees. The database
 * switches a rule only if it is still the one that the process saw, so one process of several switches it, and that one reports it.
 *
 * **Failures.** If the rules cannot be read, calls continue with those of the last three seconds; after that they fail, within their wait budget.
 * Where the SQL of observed keys fails, the opening of the transaction fails, and nothing is held.
 */
export { type Rollout, type RolloutMode, type RolloutRule } from './rollout.ts'
export {
  type ReportDuplicateOptions,
  RolloutInDatabase,
  type SetRolloutOptions,
  type StoredRolloutRule,
} from './rolloutInDatabase.ts'
export { rolloutPart } from './rolloutPart.ts'
export type { SwitchBackTriggers } from './rolloutTrigger.ts'
