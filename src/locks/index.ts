/**
 * Locks: a concept under a number that PostgreSQL can lock.
 *
 * **The key** is `Operation:resource`. Its **id** is 64 bits of SHA-256 over schema, domain and key, so that modules and schemas
 * never share an id by accident, and `lock_id()` in SQL gives the same number.
 *
 * **Several keys** are hashed, freed of duplicates and sorted by id; every caller everywhere takes them in that order, so no two
 * can wait for each other in a circle. One that is asked for both shared and exclusive is refused: an upgrade from shared to
 * exclusive is a deadlock as soon as two callers do it.
 *
 * **Waiting** happens in three places. In this process: callers of one key stand in a queue in memory and only the first continues
 * (`KeyQueue`). At the pool: for a connection. At the server: in slices of at most two seconds, because a waiting statement holds a
 * snapshot that would delay VACUUM and CREATE INDEX CONCURRENTLY; and on at most half of the pool's connections (`ServerWaitSlots`),
 * because the rest must stay free for those that hold the locks. A server's lock is granted in order of arrival; a slice that
 * ends gives the place up, so between processes the order is approximate.
 *
 * **Inspecting.** `listLocks` shows who holds what, who waits and who blocks whom, from one look at the server's lock table. The server
 * knows numbers only, so `NameRegistry` writes down which key a number stands for: in the background, on a connection that no caller
 * waits for, never in a caller's transaction. A name that is missing costs readability and nothing else.
 *
 * **Names** are written beside the locks, in the background: a lock never fails or waits because of its name.
 *
 * **What is trusted.** The server's word alone. The queue in memory excludes no caller: it only spares connections. A wait that
 * ended in an error may still have been granted, so every failure rolls back, and where that cannot be confirmed the connection
 * is destroyed: the server frees a transaction's locks with its session.
 */
export {
  type Backend,
  type BlockingNode,
  blockingTree,
  type Claim,
  type ContestedLock,
  type Edge,
  edgesOf,
  type Wanted,
} from './blockingTree.ts'
export { Closing } from './closing.ts'
export { findHolders } from './holders.ts'
export { checkKey, checkLiterals, type Key, key, type KeyPart, MAX_KEY_BYTES } from './key.ts'
export { KeyQueue, type QueuedKey, type Ticket } from './keyQueue.ts'
export { QueueLimit } from './queueLimit.ts'
export {
  type ListedLock,
  type ListedWaiter,
  listLocks,
  type ListLocksOptions,
  type LockListing,
  type Locks,
} from './listLocks.ts'
export { keyDigest, type LockDomain, lockId, lockIdOf, type OnNewKey, RecentLockIds } from './lockId.ts'
export { lockList } from './lockList.sql.ts'
export type { LockMethod, LocksByParameter, Strategy } from './lockMethod.ts'
export { lockMethod } from './lockMethods.ts'
export { type Keys, type LockRequest, type LockSet, lockSet, MAX_KEYS } from './lockSet.ts'
export {
  AFTER_WAITING,
  beforeWaiting,
  beforeHandOver,
  cancelBackend,
  terminateHolder,
  listedLocks,
  parameter,
  sessionLock,
  sessionUnlock,
  stateHeld,
  stateHeldByParameter,
  stateHeldToo,
  takeOver,
  transactionLock,
  tryForSession,
  unlockLeftovers,
} from './locks.sql.ts'
export { type NameLimits, NameRegistry } from './nameRegistry.ts'
export { AFTER_END_MS, closedError, WaitBudget } from './waitBudget.ts'
export { RecentContention } from './recentContention.ts'
export { ServerWaitSlots } from './serverWaitSlots.ts'
