import type { LockRequest, LockSet } from './lockSet.ts'

/** A caller's place in the queues of its keys. */
export interface Ticket {
  /** True where the caller had to wait for another caller of this process. */
  readonly waited: boolean
  /** The server has granted the locks: other shared callers of the same keys may try theirs now. */
  confirm(): void
  /** Lets the next one in. */
  release(): void
}

interface Waiter {
  readonly shared: boolean
  readonly grant: () => void
}

interface Entry {
  exclusive: boolean
  /** Shared callers that have the server's lock. */
  confirmed: number
  /** Shared callers that are about to ask the server for it. */
  asking: number
  readonly waiting: Waiter[]
}

/**
 * The callers of one process, in order of arrival, per key. Only the first of them goes to the server, so that five hundred
 * callers of one key hold one connection and not the whole pool. Shared callers go in together, but not before one of them has
 * the server's lock: until then one of them asks for all.
 */
export class KeyQueue {
  readonly #entries = new Map<bigint, Entry>()

  /**
   * Enters the queues in ascending order of id. Rejects with the signal's reason if it aborts first; then nothing is held. The
   * signal is read only where somebody has to wait: making one has its price.
   */
  async enter(locks: LockSet, patience: { readonly signal?: AbortSignal }): Promise<Ticket> {
    const held: LockRequest[] = []
    let waited = false
    try {
      for (const lock of locks) {
        if (!this.#tryEnter(lock)) {
          waited = true
          await this.#wait(lock, patience.signal)
        }
        held.push(lock)
      }
    } catch (error) {
      for (const lock of held) this.#leave(lock, false)
      throw error
    }
    let confirmed = false
    let released = false
    return {
      waited,
      confirm: () => {
        if (confirmed || released) return
        confirmed = true
        for (const lock of held) this.#confirm(lock)
      },
      release: () => {
        if (released) return
        released = true
        for (const lock of held) this.#leave(lock, confirmed)
      },
    }
  }

  /** True where another caller of this process has, or waits for, one of the locks. */
  isBusy(locks: LockSet): boolean {
    return locks.some((lock) => {
      const entry = this.#entries.get(lock.id)
      return entry !== undefined && !canEnter(entry, lock.shared)
    })
  }

  /** The number of keys that somebody holds or waits for. */
  get size(): number {
    return this.#entries.size
  }

  #entry(id: bigint): Entry {
    let entry = this.#entries.get(id)
    if (entry === undefined) {
      this.#entries.set(id, (entry = { exclusive: false, confirmed: 0, asking: 0, waiting: [] }))
    }
    return entry
  }

  #tryEnter(lock: LockRequest): boolean {
    const entry = this.#entry(lock.id)
    if (!canEnter(entry, lock.shared)) return false
    admit(entry, lock.shared)
    return true
  }

  #wait(lock: LockRequest, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason as Error)
      const entry = this.#entry(lock.id)
      const onAbort = (): void => {
        entry.waiting.splice(entry.waiting.indexOf(waiter), 1)
        // The one that gives up may have been an exclusive caller with shared ones behind it.
        this.#advance(lock.id, entry)
        reject(signal?.reason as Error)
      }
      const waiter: Waiter = {
        shared: lock.shared,
        grant: () => {
          signal?.removeEventListener('abort', onAbort)
          resolve()
        },
      }
      entry.waiting.push(waiter)
      signal?.addEventListener('abort', onAbort, { once: true })
    })
  }

  #confirm(lock: LockRequest): void {
    if (!lock.shared) return
    const entry = this.#entry(lock.id)
    entry.asking--
    entry.confirmed++
    this.#advance(lock.id, entry)
  }

  #leave(lock: LockRequest, confirmed: boolean): void {
    const entry = this.#entry(lock.id)
    if (!lock.shared) entry.exclusive = false
    else if (confirmed) entry.confirmed--
    else entry.asking--
    this.#advance(lock.id, entry)
  }

  #advance(id: bigint, entry: Entry): void {
    for (;;) {
      const next = entry.waiting[0]
      if (next === undefined || !hasRoom(entry, next.shared)) break
      entry.waiting.shift()
      admit(entry, next.shared)
      next.grant()
    }
    if (!entry.exclusive && entry.confirmed + entry.asking === 0 && entry.waiting.length === 0) this.#entries.delete(id)
  }
}

function hasRoom(entry: Entry, shared: boolean): boolean {
  if (entry.exclusive) return false
  return shared ? entry.confirmed > 0 || entry.asking === 0 : entry.confirmed + entry.asking === 0
}

/** Nobody overtakes: whoever comes while others wait goes behind them. */
function canEnter(entry: Entry, shared: boolean): boolean {
  return entry.waiting.length === 0 && hasRoom(entry, shared)
}

function admit(entry: Entry, shared: boolean): void {
  if (shared) entry.asking++
  else entry.exclusive = true
}
