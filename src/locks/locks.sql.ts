import type { LockMethod } from './lockMethod.ts'
import type { LockRequest, LockSet } from './lockSet.ts'

/** The SQL of the locks. Ids are numbers of our own making, so they stand in the text: a message of many statements has no parameters. */

/** How often a backend that waits for a lock checks whether its client still exists. Without this, a killed process stays queued. */
const CONNECTION_CHECK_MS = 1000

function call(name: string, lock: LockRequest, id = String(lock.id)): string {
  return `${name}${lock.shared ? '_shared' : ''}(${id})`
}

/** How the id of the lock at a place of a set stands in a text. */
type IdAt = (lock: LockRequest, place: number) => string

/** As it is. */
function literal({ id }: LockRequest): string {
  return String(id)
}

/** As a parameter, from $1 on: one text for all locks of a kind. */
export function parameter(_lock: LockRequest, place: number): string {
  return `$${place + 1}::bigint`
}

/**
 * Tries the locks in ascending order and stops at the first that is taken: an expression that is `granted` or null. CASE is
 * the one construct that promises this order; a session that holds a later lock while it waits for an earlier one makes a deadlock.
 */
export function tryLocks(locks: LockSet, granted: string): string {
  return locks.reduceRight(
    (inner, lock) => `CASE WHEN ${call('pg_try_advisory_xact_lock', lock)} THEN ${inner} END`,
    granted,
  )
}

/** The same, with the ids as parameters. */
function tryLocksByParameter(locks: LockSet, granted: string): string {
  return locks.reduceRight(
    (inner, lock, place) =>
      `CASE WHEN ${call('pg_try_advisory_xact_lock', lock, parameter(lock, place))} THEN ${inner} END`,
    granted,
  )
}

/**
 * The setting in which a transaction states what it holds exclusively: ids as 16 hexadecimal digits, with commas between. So a trigger looks for
 * the digits of a hash as they are, without making a number of them. It ends with the transaction.
 */
const HELD = 'lockstep.held'

/**
 * States which locks the transaction holds, for triggers that ask: an expression that is `granted`. It stands in the statement that reports the
 * locks as granted, so it takes no round trip. Shared locks are left out: who holds one has no right to write.
 */
export function stateHeld(locks: LockSet, granted: string): string {
  return stating(isExclusive(locks) ? `'${exclusiveIds(locks)}'` : undefined, granted)
}

/** The same with the ids as parameters from $1 on. Only for a few locks: a function takes 100 arguments at most. */
export function stateHeldByParameter(locks: LockSet, granted: string): string {
  const ids = locks.flatMap((lock, place) => (lock.shared ? [] : `encode(int8send(${parameter(lock, place)}), 'hex')`))
  return stating(ids.length > 1 ? `concat_ws(',', ${ids.join(', ')})` : ids[0], granted)
}

function stating(held: string | undefined, granted: string): string {
  if (held === undefined) return granted
  return `CASE WHEN set_config('${HELD}', ${held}, true) IS NOT NULL THEN ${granted} END`
}

function isExclusive(locks: LockSet): boolean {
  return locks.some(({ shared }) => !shared)
}

function exclusiveIds(locks: LockSet): string {
  return locks
    .filter(({ shared }) => !shared)
    .map(({ id }) => BigInt.asUintN(64, id).toString(16).padStart(16, '0'))
    .join(',')
}

/** The same of PL/pgSQL, in a transaction that may have stated something before. Empty where all are shared. */
export function stateHeldToo(locks: LockSet): string {
  const before = `nullif(current_setting('${HELD}', true), '')`
  if (!isExclusive(locks)) return ''
  return `PERFORM set_config('${HELD}', concat_ws(',', ${before}, '${exclusiveIds(locks)}'), true);`
}

/** Takes one lock for the transaction, at once: for locks that the session already has. */
export function transactionLock(lock: LockRequest): string {
  return call('pg_advisory_xact_lock', lock)
}

export function sessionLock(lock: LockRequest, id?: string): string {
  return call('pg_advisory_lock', lock, id)
}

export function sessionUnlock(lock: LockRequest, id?: string): string {
  return call('pg_advisory_unlock', lock, id)
}

/** What `takeOver()` recognizes a refusal by: AND CHAIN makes the next transaction read-only as well, and nothing outlives that one. */
const REFUSED = `set_config('transaction_read_only', 'on', true)`

/**
 * Tries the locks for the session, in ascending order, in the first transaction of a hand-over. Where one is taken, it releases those before
 * it: a session lock never remains after a refusal.
 */
export function tryForSession(locks: LockSet, idAt: IdAt = literal): string {
  return locks.reduceRight((inner, lock, place) => {
    const before = locks.slice(0, place).map((each, earlier) => `, ${sessionUnlock(each, idAt(each, earlier))}`)
    const tried = call('pg_try_advisory_lock', lock, idAt(lock, place))
    return `CASE WHEN ${tried} THEN ${inner} ELSE concat(${REFUSED}${before.join('')}) END`
  }, "'t'")
}

/**
 * Makes the session's locks those of the transaction: an expression that is `granted`, or null where the session did not have them. That the
 * server unlocked them for the session is the proof: what came free only after the snapshot was taken is no lock of the session. Asking for
 * the mark of a refusal spares the log a warning in that case.
 */
export function takeOver(locks: LockSet, granted: string, idAt: IdAt = literal): string {
  const taken = locks.reduceRight((inner, lock, place) => {
    const id = idAt(lock, place)
    return `CASE WHEN ${call('pg_try_advisory_xact_lock', lock, id)} THEN CASE WHEN ${sessionUnlock(lock, id)} THEN ${inner} END END`
  }, granted)
  return `CASE WHEN current_setting('transaction_read_only') = current_setting('default_transaction_read_only') THEN ${taken} END`
}

/** Sets the limit of the next wait of a message to what is left of `waitMs`. */
export function lockTimeout(waitMs: number, index: number): string {
  const bound = Math.max(1, Math.floor(waitMs))
  if (index === 0) return `SET LOCAL lock_timeout = ${bound};`
  const spent = 'floor(extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000)'
  return `SELECT set_config('lock_timeout', greatest(1, ${bound} - ${spent})::int::text, true);`
}

/**
 * Waits for the locks in ascending order, `waitMs` at most for all of them together: `lock_timeout` counts for each lock, so
 * what is left is computed before each from the time at which the message arrived. Where it is wanted, each tries first and so
 * returns whether it had to wait.
 */
export function waitForLocks(locks: LockSet, waitMs: number, reportsWaiting: boolean): string {
  return locks
    .map((lock, index) => {
      const limit = lockTimeout(waitMs, index)
      const wait = call('pg_advisory_xact_lock', lock)
      if (!reportsWaiting) return `${limit} SELECT ${wait};`
      const told = `CASE WHEN ${call('pg_try_advisory_xact_lock', lock)} THEN false ELSE ${wait} IS NOT NULL END`
      return `${limit} SELECT ${told} AS wait;`
    })
    .join(' ')
}

/**
 * For the length of a wait the backend checks its client, and only `lock_timeout` ends the wait. Here the transaction that
 * waits is over before the caller's begins: nothing has to be put back.
 */
export function beforeHandOver(checksConnections: boolean): string {
  const watch = checksConnections ? `SET LOCAL client_connection_check_interval = ${CONNECTION_CHECK_MS};` : ''
  return `${watch} SET LOCAL statement_timeout = 0;`
}

/**
 * Keeps the caller's own settings, for `AFTER_WAITING` to put back: they are its business for the rest of the transaction. One
 * statement before the wait and a part of one after it: under a hot key, what is done between the grant and the caller's first
 * statement is done while all others wait.
 */
export function beforeWaiting(checksConnections: boolean): string {
  const watch = checksConnections
    ? `, set_config('client_connection_check_interval', '${CONNECTION_CHECK_MS}', true)`
    : ''
  return `
    SELECT set_config('lockstep.lock_timeout', current_setting('lock_timeout'), true),
           set_config('lockstep.statement_timeout', current_setting('statement_timeout'), true),
           set_config('lockstep.connection_check', current_setting('client_connection_check_interval'), true),
           set_config('statement_timeout', '0', true)${watch};`
}

/** Columns of the statement that follows the wait. */
export const AFTER_WAITING = `
           set_config('lock_timeout', current_setting('lockstep.lock_timeout'), true),
           set_config('statement_timeout', current_setting('lockstep.statement_timeout'), true),
           set_config('client_connection_check_interval', current_setting('lockstep.connection_check'), true)`

/** Unlocks what a failed hand-over may have left on the session. After its rollback the session's locks are all it can have. */
export function unlockLeftovers(locks: LockSet): string {
  const id = '((classid::bigint << 32) | objid::bigint)'
  return `
    SELECT CASE mode WHEN 'ShareLock' THEN pg_advisory_unlock_shared(${id}) ELSE pg_advisory_unlock(${id}) END
      FROM pg_locks
     WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = pg_backend_pid()
       AND ${id} IN (${locks.map((lock) => lock.id).join(', ')})`
}

/** How many of these locks the server's own list shows for this session. */
export function listedLocks(locks: LockSet): string {
  return `
    SELECT count(*)::text AS listed FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() AND (${locks.map((lock) => isLock(lock.id)).join(' OR ')})`
}

/** Who holds these locks now. */
export function holdersOf(locks: LockSet): string {
  return `
    SELECT l.classid::text AS high, l.objid::text AS low, a.pid::text AS pid, a.application_name AS application, a.state AS state,
           floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::text AS open
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.granted AND a.pid <> pg_backend_pid()
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND (${locks.map((lock) => isLock(lock.id)).join(' OR ')})
     LIMIT 20`
}

/** Ends a session that holds one of these locks, unless it is at work. Gives a row where it held one. */
export function terminateHolder(pid: number, locks: LockSet): string {
  return `
    SELECT CASE WHEN a.state LIKE 'idle%' THEN pg_terminate_backend(a.pid)::text END
      FROM pg_stat_activity a
     WHERE a.pid = ${pid}
       AND EXISTS (SELECT FROM pg_locks l
                    WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted AND l.database = a.datid
                      AND (${locks.map((lock) => isLock(lock.id)).join(' OR ')}))`
}

/** pg_locks shows a 64-bit id as two halves. */
function isLock(id: bigint): string {
  const unsigned = BigInt.asUintN(64, id)
  return `(classid = ${unsigned >> 32n}::oid AND objid = ${unsigned & 0xffffffffn}::oid AND objsubid = 1)`
}

/** Stops the statement that a backend runs. */
export function cancelBackend(pid: number): string {
  return `SELECT pg_cancel_backend(${pid})`
}

/** PostgreSQL's advisory locks. */
export const advisoryMethod: LockMethod = {
  name: 'advisory',
  heldBySession: true,
  tryLocks,
  byParameter: { tryLocks: tryLocksByParameter, texts: new Map() },
  waitForLocks,
}
