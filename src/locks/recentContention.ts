import type { LockSet } from './lockSet.ts'

/** How long a key that was found taken is expected to be taken. */
const EXPECTED_FOR_MS = 250

/** More keys than are fought over at a time. */
const MAX_KEYS = 1000

/**
 * Keys that another process held when they were last asked for. The next caller of one of them had better wait for it at once
 * than ask whether it is free: under a hot key that question is a wasted round trip.
 */
export class RecentContention {
  readonly #until = new Map<bigint, number>()

  note(locks: LockSet): void {
    if (this.#until.size >= MAX_KEYS) this.#until.clear()
    const until = performance.now() + EXPECTED_FOR_MS
    for (const lock of locks) this.#until.set(lock.id, until)
  }

  forget(locks: LockSet): void {
    for (const lock of locks) this.#until.delete(lock.id)
  }

  /** Whether one of the locks is likely to be taken. */
  expects(locks: LockSet): boolean {
    if (this.#until.size === 0) return false
    const now = performance.now()
    return locks.some((lock) => (this.#until.get(lock.id) ?? 0) > now)
  }
}
