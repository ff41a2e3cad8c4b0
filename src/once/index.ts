/**
 * Once: find it, or create it, and never twice.
 *
 * **The promise.** Of all callers with one key, in any number of processes, exactly one creates; all others get what it created.
 *
 * **How.** One transaction: the key's lock, then `find`, then, if there is nothing, `create`. The lock is granted before `find`
 * reads (see transactions/), so `find` sees what the last holder committed. Check and insert on two connections, or in one
 * transaction without the lock, leave a window between the two: that is the race of two paths that create one thing.
 *
 * **Failures.** `create` throws: nothing is written, the next caller finds nothing and creates. The process dies before COMMIT: the
 * same. The answer to COMMIT is lost: the server is asked (see transactions/), and the caller receives `created: true` only if it
 * was. After a conflict both functions are run again, from `find` on.
 *
 * **A path that does not take the lock** (an older version, a script) can still insert between `find` and `create`. If a unique
 * constraint stops the second insert, `once` looks again, and gives what the other path made; without such a constraint there
 * are two. The lock makes the race rare in practice, the constraint makes it impossible: have both.
 *
 * **As a part of a transaction** that holds the key: `tx.once()`, a savepoint. It is created, and undone, with that transaction.
 *
 * **`onceExternal`** is for creating outside the database, which takes seconds: an order at an exchange. States of the thing: nothing →
 * begun (a row with an id of our own making, seen by everyone) → done. Under a lease: `find`, and `begin` if there is nothing, in one
 * guarded transaction; `act` outside, with the id, holding no connection; `finish` in a guarded transaction. A creator that dies or
 * is stopped leaves an attempt; its lease ends by itself, and the next caller takes the attempt over *with its id*: if the
 * other system honors the id, there is one thing. A stopped creator that continues cannot write any more (see leases/), and what it does
 * outside it does under the same id. `act` that fails is abandoned, if the caller says how, or left to the next.
 *
 * **Waiting for a creation.** Of all callers of a process with one key, one asks for the lease, and the others wait for it in memory. When it
 * knows that the thing is there, all of them look for themselves, without the lease; when it fails, the next one tries (see
 * creationQueue.ts). So N callers in P processes take the lease about P times, and not N times.
 */
export { CreationQueue } from './creationQueue.ts'
export { once, type OnceOptions, type OnDuplicate } from './once.ts'
export { oncePart } from './oncePart.ts'
export { type ActContext, type Found, onceExternal, type OnceExternalOptions } from './onceExternal.ts'
export type { OnceResult } from '../transactions/index.ts'
