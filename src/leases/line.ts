import { setTimeout as sleep } from 'node:timers/promises'
import { LockAborted, type LockstepClosed } from '../errors.ts'
import { closedError, type Key, lockId, Patience } from '../locks/index.ts'
import { SilenceWatch, withConnection } from '../postgres/index.ts'
import type { Grounds } from '../transactions/index.ts'
import type { Grant } from './lease.ts'
import { leaveLine, look, type LookRow, standInLine } from './leases.sql.ts'
import type { LeasePlan } from './options.ts'
import type { Pending } from './pending.ts'
import { giveBack, isLost, leaseHeld, type Obstacle, PAUSE_MS, takeLease, TRIES } from './take.ts'
import { WakeUp } from './wakeUp.ts'

/** A waiter that is not kept alive is passed over after this time. */
const KEEP_MS = 6000
/** How often to look where a wake-up call can be counted on, and where not. */
const LOOK_MS = 1000
const LOOK_DEAF_MS = 60
/** How long one message of the line may take. */
const SILENCE_MS = 2000
/** A moment after the holder's end. */
const AFTER_END_MS = 5

interface Waiter {
  readonly key: Key
  readonly token: string
  readonly plan: LeasePlan
  readonly settle: (outcome: Grant | Error) => void
  place: string | undefined
  /** Whether the database is being asked for it just now. */
  trying: boolean
  /** Whether it was worth another look while it was being asked. */
  again: boolean
  left: boolean
  obstacle: Obstacle
}

/**
 * The callers of one Lockstep that wait for leases. Each has a row in the database, in the order of coming, and none a connection:
 * one message looks for all of them, keeps their rows alive, and says for whom it is worth trying. They are looked after when the
 * one who gives a lease back says so (LISTEN, on one connection for all), when the holder's time is over, and every second; behind
 * a pooler, where nobody can listen, much more often.
 */
export class WaitingLine {
  readonly #grounds: Grounds
  readonly #pending: Pending
  readonly #waiters = new Map<string, Waiter>()
  readonly #perKey = new Map<Key, number>()
  readonly #wakeUp: WakeUp
  /** A dead connection must not stop the line for longer than its rows live. */
  readonly #silence = new SilenceWatch(SILENCE_MS)
  #arrivals: Waiter[] = []
  #standing = false
  #looking = false
  #timer: NodeJS.Timeout | undefined
  #lookAt = Infinity

  constructor(grounds: Grounds, pending: Pending) {
    this.#grounds = grounds
    this.#pending = pending
    const channel = `lockstep_${lockId(grounds.schema, 'listen', 'Leases:all')}`
    this.#wakeUp = new WakeUp(grounds, channel, (token) => this.#woken(token))
  }

  /** Whether a caller of this process waits for it. */
  has(key: Key): boolean {
    return (this.#perKey.get(key) ?? 0) > 0
  }

  /** Waits until the lease is granted, or the patience ends. */
  wait(key: Key, token: string, plan: LeasePlan, patience: Patience, obstacle: Obstacle): Promise<Grant> {
    return new Promise<Grant>((resolve, reject) => {
      let forget: (() => void) | undefined
      const waiter: Waiter = {
        key,
        token,
        plan,
        place: undefined,
        trying: false,
        again: false,
        left: false,
        obstacle,
        settle: (outcome) => {
          forget?.()
          if (this.#waiters.delete(token)) this.#count(key, -1)
          if (outcome instanceof Error) reject(outcome)
          else resolve(outcome)
        },
      }
      // Told at once where it has ended before.
      forget = patience.onEnd(() => this.#leave(waiter, ended(waiter, patience)))
      if (waiter.left) return
      this.#waiters.set(token, waiter)
      this.#count(key, 1)
      this.#arrivals.push(waiter)
      this.#wakeUp.wanted(true)
      void this.#stand()
    })
  }

  #count(key: Key, change: number): void {
    const count = (this.#perKey.get(key) ?? 0) + change
    if (count > 0) this.#perKey.set(key, count)
    else this.#perKey.delete(key)
  }

  /** Puts those that have come in line: in their order, and one message at a time, so that the order is kept. */
  async #stand(): Promise<void> {
    if (this.#standing) return
    this.#standing = true
    // Whoever comes in the same moment goes along.
    await Promise.resolve()
    while (this.#arrivals.length > 0) {
      const arrived = this.#arrivals.filter(({ left }) => !left)
      this.#arrivals = []
      if (arrived.length === 0) break
      try {
        const rows = await this.#standThere(arrived)
        for (const { token, place } of rows) {
          const waiter = this.#waiters.get(token)
          if (waiter !== undefined) waiter.place = place
        }
        const gone = arrived.filter(({ left }) => left)
        if (gone.length > 0) this.#tellLeft(gone.map(({ token }) => token))
      } catch (error) {
        for (const waiter of arrived) this.#leave(waiter, error as Error)
        // Their rows may be there all the same.
        this.#tellLeft(arrived.map(({ token }) => token))
      }
      this.#lookIn(0)
    }
    this.#standing = false
  }

  /** A row that is there already is the answer to a try whose answer was lost. */
  async #standThere(arrived: readonly Waiter[]): Promise<{ token: string; place: string }[]> {
    const rows = arrived.map(({ key, token, plan }) => ({ name: key, token, holder: plan.holder }))
    const text = standInLine(this.#grounds.quotedSchema, rows, KEEP_MS)
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#rows(text)
      } catch (error) {
        if (attempt >= TRIES || !isLost(error)) throw error
        await sleep(PAUSE_MS * attempt)
      }
    }
  }

  #leave(waiter: Waiter, error: Error): void {
    if (waiter.left) return
    waiter.left = true
    waiter.settle(error)
    // One that is being asked for takes its row along, or gives back what it got.
    if (!waiter.trying && waiter.place !== undefined) this.#tellLeft([waiter.token])
    if (this.#waiters.size === 0) this.#wakeUp.wanted(false)
  }

  #tellLeft(tokens: readonly string[]): void {
    // If it cannot be told, the rows are passed over when nobody keeps them.
    const telling = this.#rows(leaveLine(this.#grounds.quotedSchema, tokens)).catch(() => undefined)
    void this.#pending.track(telling)
  }

  #woken(token: string | undefined): void {
    const waiter = token === undefined ? undefined : this.#waiters.get(token)
    if (waiter !== undefined) void this.#try(waiter)
    else if (token === undefined) this.#lookIn(0)
  }

  /** Somebody of this process has given one back: where nobody can listen, this is the call. */
  released(key: Key): void {
    if (this.#wakeUp.hears) return
    for (const waiter of this.#waiters.values()) {
      if (waiter.key === key) return this.#lookIn(0)
    }
  }

  #lookIn(ms: number): void {
    const at = performance.now() + ms
    if (at >= this.#lookAt) return
    this.#lookAt = at
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.#look(), ms)
  }

  async #look(): Promise<void> {
    this.#lookAt = Infinity
    if (this.#looking) return this.#lookIn(1)
    const standing = [...this.#waiters.values()].filter(({ place }) => place !== undefined)
    if (standing.length === 0) return
    this.#looking = true
    let next = this.#wakeUp.hears ? LOOK_MS : LOOK_DEAF_MS
    try {
      const asked = standing.map(({ token, plan }) => ({ token, permits: plan.permits }))
      const rows = await this.#rows<LookRow>(look(this.#grounds.quotedSchema, asked, KEEP_MS))
      const seen = new Set(rows.map(({ token }) => token))
      for (const { token, ready, left } of rows) {
        const waiter = this.#waiters.get(token)
        if (waiter === undefined) continue
        if (ready === 'true') void this.#try(waiter)
        else if (left !== null) next = Math.min(next, Number(left) + AFTER_END_MS)
      }
      // Its row was passed over and cleaned away while this process was stopped: it goes to the end of the line.
      const lost = standing.filter((waiter) => {
        return !waiter.left && !waiter.trying && !seen.has(waiter.token) && !this.#arrivals.includes(waiter)
      })
      if (lost.length > 0) {
        this.#arrivals.push(...lost)
        void this.#stand()
      }
    } catch {
      next = LOOK_MS
    } finally {
      this.#looking = false
    }
    this.#lookIn(next)
  }

  async #try(waiter: Waiter): Promise<void> {
    if (waiter.trying) {
      waiter.again = true
      return
    }
    waiter.trying = true
    try {
      do {
        waiter.again = false
        const taken = await takeLease(this.#grounds, this.#pending, waiter.key, waiter.token, waiter.plan, waiter.place)
        if (taken.granted) {
          if (waiter.left) {
            void this.#pending.track(giveBack(this.#grounds, waiter.key, waiter.token, waiter.plan.ttlMs))
            return
          }
          waiter.left = true
          waiter.settle(taken.grant)
          if (this.#waiters.size === 0) this.#wakeUp.wanted(false)
          return
        }
        waiter.obstacle = taken.by
      } while (waiter.again && !waiter.left)
      if (waiter.left) this.#tellLeft([waiter.token])
    } catch (error) {
      this.#leave(waiter, error as Error)
      this.#tellLeft([waiter.token])
    } finally {
      waiter.trying = false
    }
  }

  async #rows<Row>(text: string): Promise<Row[]> {
    const results = await withConnection(this.#grounds.driver, (connection) => connection.script(text), this.#silence)
    return results.flatMap((result) => result.rows as unknown as Row[])
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer)
    await this.#wakeUp.close()
  }
}

function ended({ key, obstacle, plan }: Waiter, patience: Patience): Error {
  return patience.aborted ? givenUp(key, plan.signal) : leaseHeld(key, obstacle, patience.waitedMs)
}

/** The error for a wait that was ended from outside: by the caller's signal, or by closing. */
export function givenUp(key: Key, signal: AbortSignal | undefined): LockAborted | LockstepClosed {
  if (signal?.aborted !== true) return closedError([key])
  return new LockAborted(`The lease on ${key} was given up: the caller's signal was aborted.`, {
    advice: 'Nothing is held; ask again when it is wanted again.',
    keys: [key],
    cause: signal.reason,
  })
}
