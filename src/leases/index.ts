/**
 * Leases: exclusive for longer than a transaction, without a connection.
 *
 * **The promise.** At most one holder at a time (or `permits` of them); a crashed holder's lease ends by itself; and a holder that has
 * lost its lease cannot commit through `lease.transaction()`.
 *
 * **L1 The row.** One row for each name and slot, judged by the database's clock alone. Acquiring decides by a plain read first: a
 * refusal takes no lock and writes nothing. A free or expired row is taken with FOR UPDATE SKIP LOCKED: locked means held, also of a row
 * of another number of permits, whose slot the caller does not know. The token
 * is made by the acquirer, so that an answer that was lost can be asked for again; the row's time begins again with that question, as the
 * holder's trust does. The fence comes from a sequence, under the generation,
 * which follows the server's timeline: it only grows. Taking and renewing are on disk before they are answered, whatever the session's setting.
 *
 * Only the database says "held", in this call: a question without an answer is a connection error, and so is the end of a
 * wait that could not ask again (see acquireProgress.ts).
 *
 * **L2 Trust.** States: `held` → `lost` or `released`. The holder trusts its lease for nine tenths of the ttl, counted on its own
 * clocks from the moment *before* the question was sent that the database said yes to. A heartbeat every third of the ttl has three
 * outcomes: renewed (trust begins again), lost (the row says so: the end), unknown (no answer, or the row was locked: tried again
 * while the trust lasts). At the end of the trust `signal` is aborted with a `LeaseLostError`. A process that was stopped finds out when it
 * continues: `assertHeld()` looks at the clocks, not at a flag.
 *
 * A lease of the library's own can rest: it is neither renewed nor trusted, and not released. Its time ends, and the next caller gets it. Its holder
 * holds it again if the row still has its token and its fence (`lease_revive`): then no other caller had it meanwhile.
 *
 * **L3 The guard.** `lease.transaction` begins by reading its row FOR KEY SHARE, by token and fence and not expired. A caller that takes the lease must
 * change the fence, a column of a unique index, and that waits for the share lock: until our commit no other caller can have it. The
 * heartbeat changes no such column and does not wait. Outside READ COMMITTED the row's end is not looked at: the snapshot has an old one.
 * A holder that is frozen inside its transaction is ended by the server
 * at the end of its trust (`idle_in_transaction_session_timeout`; `transaction_timeout` from 17 on), so a lease.transaction must be
 * shorter than the ttl. `lease.guard(tx)` does the same in a transaction that is open.
 *
 * **L4 Waiting.** First come, first served, over all processes: each waiter has a row, kept alive by its process, and no later
 * caller overtakes it, not even one that finds the lease free. A waiter that is gone is passed over after six seconds. No waiter
 * has a connection (see waitQueue.ts).
 *
 * **L5 The end.** Lockstep tries to release a lease whatever has been aborted, and a release can be repeated. `forceRelease` records who did
 * it and why. It waits for an open transaction of the holder, or ends it.
 *
 * **L6 Failover.** A row's end is by the clock of the server that wrote it. When a server epoch begins on another timeline, what was held at the
 * last known moment of the old one is held for its ttl from now on, by this server's clock, and its holder can renew it. A free lease may have a
 * holder whose row was lost: it is granted only after `maxTtlMs` of the schema, which no ttl exceeds, unless an operator has stated that
 * no acknowledged commit can be lost. A crash costs nothing of this. (docs/decisions/0044-leases-over-a-failover.md)
 *
 * **Rollout.** Where the rollout has a key observed or left alone, a caller gets a lease that excludes no other and that no other can end
 * (nonExclusiveLease.ts). An observer is seen by others through a lease on another name (observedLeases.ts).
 *
 * **Limits.** A forward step of the *database’s* clock ends leases early, while their holders still trust them. Inside the database the
 * guard still protects; effects outside need the fence.
 */
export { moveClocks } from './clock.ts'
export type { ForceReleaseOptions } from './forceRelease.ts'
export { leader, type LeaderOptions } from './leader.ts'
export type { GuardedTransaction, Lease } from './lease.ts'
export type { LeaseMode } from '../transactions/index.ts'
export { Leases } from './leases.ts'
export type { Hear, Listener } from './listener.ts'
export { LEASE_OPTIONS, type LeaseOptions } from './options.ts'
export type {
  HistoryEntry,
  LeaseDetails,
  LeaseHistoryOptions,
  LeaseHolder,
  LeaseInfo,
  LeaseWaiter,
  ListLeasesOptions,
} from './inspect.ts'
