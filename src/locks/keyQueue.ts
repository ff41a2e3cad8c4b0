import type { Key } from './key.ts'
import type { LockRequest, LockSet } from './lockSet.ts'
import { QueueLimit } from './queueLimit.ts'

/** A caller's place in the queues of its keys. */
export interface Ticket {
  /** True where the caller had to wait for another caller of this process. */
  readonly waited: boolean
  /** The server has granted the locks: other shared callers of the same keys may try theirs now. */
  confirm(): void
  /** Lets the next one in. */
  release(): void
}

/** How long a caller waits: see `WaitBudget`. */
export interface WaitLimit {
  onEnd(listener: () => void): () => void
}

interface Waiter {
  readonly shared: boolean
  readonly grant: () => void
}

/** A key that callers of this process hold or wait for. */
export interface QueuedKey {
  readonly id: bigint
  readonly key: Key
  /** Callers that wait here, behind another caller of this process. */
  readonly waiting: number
}

interface Entry {
  readonly key: Key
  exclusive: boolean
  /** Shared callers that have the server's lock. */
  confirmed: number
  /** Shared callers that are about to ask the server for it. */
  asking: number
  readonly waiting: Waiter[]
}

/** More than that are not kept for those who may come again. */
const KEPT_ENTRIES = 1000

/**
 * The callers of one process, in order of arrival, per key. Only the first of them goes to the server, so that five hundred
 * callers of one key hold one connection and not the whole pool. Shared callers go in together, but not before one of them has
 * the server's lock: until then one of them asks for all.
 */
export class KeyQueue {
  /** Some that are no longer wanted are kept: a Map with something new in it all the time is work for the collector. */
  readonly #entries = new Map<bigint, Entry>()
  readonly #limit: QueueLimit

  constructor(limit = new QueueLimit()) {
    this.#limit = limit
  }

  /** Enters at once, or not at all. */
  tryEnter(locks: LockSet): Ticket | undefined {
    for (let index = 0; index < locks.length; index++) {
      if (this.#tryEnter(locks[index] as LockRequest)) continue
      for (const lock of locks.slice(0, index)) this.#leave(lock, false)
      return undefined
    }
    return this.#ticket(locks, false)
  }

  /**
   * Enters the queues in ascending order of id. Undefined where the wait budget ended first, `QueueFullError` where too many wait already; then
   * nothing is held.
   */
  async enter(locks: LockSet, budget: WaitLimit): Promise<Ticket | undefined> {
    let waited = false
    for (let index = 0; index < locks.length; index++) {
      const lock = locks[index] as LockRequest
      if (this.#tryEnter(lock)) continue
      waited = true
      const refusal = this.#limit.begin(lock.key, this.#entry(lock).waiting.length)
      if (refusal === undefined) {
        const entered = await this.#wait(lock, budget)
        this.#limit.end()
        if (entered) continue
      }
      for (const held of locks.slice(0, index)) this.#leave(held, false)
      if (refusal !== undefined) throw refusal
      return undefined
    }
    return this.#ticket(locks, waited)
  }

  #ticket(held: LockSet, waited: boolean): Ticket {
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

  /** The number of keys that are held or waited for. */
  get size(): number {
    return this.keys().length
  }

  /** Every key that is held or waited for, for inspection. */
  keys(): QueuedKey[] {
    const wanted = [...this.#entries].filter(([, entry]) => !isIdle(entry))
    return wanted.map(([id, { key, waiting }]) => ({ id, key, waiting: waiting.length }))
  }

  #entry({ id, key }: LockRequest): Entry {
    let entry = this.#entries.get(id)
    if (entry === undefined) {
      this.#entries.set(id, (entry = { key, exclusive: false, confirmed: 0, asking: 0, waiting: [] }))
    }
    return entry
  }

  #tryEnter(lock: LockRequest): boolean {
    const entry = this.#entry(lock)
    if (!canEnter(entry, lock.shared)) return false
    admit(entry, lock.shared)
    return true
  }

  /** Gives false where the wait budget ended first. */
  #wait(lock: LockRequest, budget: WaitLimit): Promise<boolean> {
    return new Promise((resolve) => {
      const entry = this.#entry(lock)
      let forget: (() => void) | undefined
      const waiter: Waiter = {
        shared: lock.shared,
        grant: () => {
          forget?.()
          resolve(true)
        },
      }
      entry.waiting.push(waiter)
      forget = budget.onEnd(() => {
        entry.waiting.splice(entry.waiting.indexOf(waiter), 1)
        // The one that gives up may have been an exclusive caller with shared ones behind it.
        this.#advance(entry)
        resolve(false)
      })
    })
  }

  #confirm(lock: LockRequest): void {
    if (!lock.shared) return
    const entry = this.#entry(lock)
    entry.asking--
    entry.confirmed++
    this.#advance(entry)
  }

  #leave(lock: LockRequest, confirmed: boolean): void {
    const entry = this.#entry(lock)
    if (!lock.shared) entry.exclusive = false
    else if (confirmed) entry.confirmed--
    else entry.asking--
    this.#advance(entry)
    if (this.#entries.size > KEPT_ENTRIES && isIdle(entry)) this.#entries.delete(lock.id)
  }

  #advance(entry: Entry): void {
    for (;;) {
      const next = entry.waiting[0]
      if (next === undefined || !hasCapacity(entry, next.shared)) break
      entry.waiting.shift()
      admit(entry, next.shared)
      next.grant()
    }
  }
}

function isIdle(entry: Entry): boolean {
  return !entry.exclusive && entry.confirmed + entry.asking === 0 && entry.waiting.length === 0
}

function hasCapacity(entry: Entry, shared: boolean): boolean {
  if (entry.exclusive) return false
  return shared ? entry.confirmed > 0 || entry.asking === 0 : entry.confirmed + entry.asking === 0
}

/** No caller overtakes: one that comes while others wait goes behind them. */
function canEnter(entry: Entry, shared: boolean): boolean {
  return entry.waiting.length === 0 && hasCapacity(entry, shared)
}

function admit(entry: Entry, shared: boolean): void {
  if (shared) entry.asking++
  else entry.exclusive = true
}
