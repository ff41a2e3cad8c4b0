import { type LockSet, sessionLock, sessionUnlock } from '../locks/index.ts'
import type { Statement } from '../postgres/index.ts'

/**
 * Between two transactions the session is idle, and so it is with a process that stands still: no timeout would ever end it. What was set is
 * kept in a setting of our own.
 */
const LIMIT_IDLENESS = [
  `set_config('lockstep.idle_session_timeout', current_setting('idle_session_timeout'), false)`,
  `set_config('idle_session_timeout', '5s', false)`,
]
const RESTORE_IDLENESS = `set_config('idle_session_timeout', current_setting('lockstep.idle_session_timeout'), false)`

/** Has the session keep locks that its transaction holds, beside it. */
export function retainLocks(locks: LockSet): Statement {
  return ofEach(locks, sessionLock, LIMIT_IDLENESS)
}

/** Releases what `retainLocks` took. */
export function unretainLocks(locks: LockSet): Statement {
  return ofEach(locks, sessionUnlock, [RESTORE_IDLENESS])
}

/** The ids as parameters: postgres.js has the server keep every text of a single statement, for as long as the session lasts. */
function ofEach(locks: LockSet, say: typeof sessionLock, more: readonly string[]): Statement {
  const calls = [...locks.map((lock, place) => say(lock, `$${place + 1}::bigint`)), ...more]
  return { text: `SELECT ${calls.join(', ')}`, values: locks.map(({ id }) => String(id)), own: true }
}

/** The same as `unretainLocks`, as a message of its own. */
export function releaseRetainedLocks(locks: LockSet): string {
  return `SELECT ${[...locks.map((lock) => sessionUnlock(lock)), RESTORE_IDLENESS].join(', ')}`
}
