import { setTimeout as sleep } from 'node:timers/promises'
import { LockAbortedError, type LockstepClosedError } from '../errors.ts'
import { closedError, type Key, type WaitBudget } from '../locks/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { type AcquireProgress, isUnreachable } from './acquireProgress.ts'
import { onClocksMoved } from './clock.ts'
import type { Grant } from './lease.ts'
import { dequeueWaiter, enqueueWaiter, look, type LookRow } from './leases.sql.ts'
import type { LeasePlan } from './options.ts'
import type { BackgroundTasks } from './backgroundTasks.ts'
import { send } from './send.ts'
import { PAUSE_MS, releaseLease, takeLease } from './take.ts'
import type { Hear, Listener } from './listener.ts'

/** A waiter that is not kept alive is passed over after this time. */
const KEEP_MS = 6000
/** How often to look where a wake-up call can be counted on, and where not. */
const LOOK_MS = 1000
const LOOK_WITHOUT_LISTEN_MS = 60
/** How long one message of the queue may take: a dead connection must not stop the queue for longer than its rows live. */
const SILENCE_MS = 2000
const LIMITS = { connectMs: SILENCE_MS, answerMs: SILENCE_MS }
/** A moment after the holder's end. */
const AFTER_END_MS = 5

interface Waiter {
  readonly key: Key
  readonly token: string
  readonly plan: LeasePlan
  readonly budget: WaitBudget
  readonly progress: AcquireProgress
  readonly settle: (outcome: Grant | Error) => void
  place: string | undefined
  /** Whether the database is being asked for it just now. */
  trying: boolean
  /** Whether it was worth another look while it was being asked. */
  again: boolean
  left: boolean
}

/** Who waits. */
export type WaitingCall = Pick<Waiter, 'key' | 'token' | 'plan' | 'budget' | 'progress'>

/**
 * The callers of one Lockstep that wait for leases. Each has a row in the database, in order of arrival, and none has a connection:
 * one message polls for all of them, keeps their rows alive, and reports which of them should try. It is sent when a holder
 * announces its release (LISTEN, on one connection for all), when the holder's time is over, and every second; behind
 * a pooler, where LISTEN does not work, much more often.
 */
export class LeaseWaitQueue {
  readonly #context: LockstepContext
  readonly #background: BackgroundTasks
  /** By token, which is secret: it is the lease's, once that is granted. */
  readonly #waiters = new Map<string, Waiter>()
  /** Those that stand in the queue, by place: under this they are notified; it is not secret. */
  readonly #queued = new Map<string, Waiter>()
  readonly #perKey = new Map<Key, number>()
  readonly #listener: Listener
  readonly #hear: Hear = (place) => this.#woken(place)
  #arrivals: Waiter[] = []
  #enqueuing = false
  #looking = false
  #timer: NodeJS.Timeout | undefined
  #unlisten: (() => void) | undefined
  #lookAt = Infinity

  constructor(context: LockstepContext, background: BackgroundTasks, listener: Listener) {
    this.#context = context
    this.#background = background
    this.#listener = listener
  }

  /** Whether a caller of this process waits for it. */
  has(key: Key): boolean {
    return (this.#perKey.get(key) ?? 0) > 0
  }

  /** Waits until the lease is granted, or the wait budget ends. */
  wait({ key, token, plan, budget, progress }: WaitingCall): Promise<Grant> {
    return new Promise<Grant>((resolve, reject) => {
      let forget: (() => void) | undefined
      const waiter: Waiter = {
        key,
        token,
        plan,
        budget,
        progress,
        place: undefined,
        trying: false,
        again: false,
        left: false,
        settle: (outcome) => {
          forget?.()
          if (this.#waiters.delete(token)) this.#count(key, -1)
          if (this.#waiters.size === 0) {
            this.#unlisten?.()
            this.#unlisten = undefined
          }
          if (waiter.place !== undefined) this.#queued.delete(waiter.place)
          if (outcome instanceof Error) reject(outcome)
          else resolve(outcome)
        },
      }
      // A waiter that has its answer is in no queue.
      if (progress.ended) return this.#leave(waiter, ended(waiter))
      progress.onEnd(() => this.#leave(waiter, ended(waiter)))
      this.#waiters.set(token, waiter)
      // The holder's time may be over.
      this.#unlisten ??= onClocksMoved(() => this.#lookIn(0))
      this.#count(key, 1)
      this.#arrivals.push(waiter)
      this.#listener.want(this.#hear)
      // Called at once where it has ended before.
      forget = budget.onEnd(() => this.#wentOver(waiter))
      void this.#enqueueArrivals()
    })
  }

  /** Its time is over. Where the database has not been heard of for a while, or not yet, it is asked once more: until the inquiry ends. */
  #wentOver(waiter: Waiter): void {
    if (waiter.budget.aborted || waiter.progress.isDecided) this.#leave(waiter, ended(waiter))
    else this.#lookIn(0)
  }

  /** Something was heard of it, or could not be: one whose time is over need not wait for more. */
  #noted(waiter: Waiter): void {
    if (!waiter.left && waiter.budget.over) this.#leave(waiter, ended(waiter))
  }

  #count(key: Key, change: number): void {
    const count = (this.#perKey.get(key) ?? 0) + change
    if (count > 0) this.#perKey.set(key, count)
    else this.#perKey.delete(key)
  }

  /** Puts those that have come in the queue: in their order, and one message at a time, so that the order is kept. */
  async #enqueueArrivals(): Promise<void> {
    if (this.#enqueuing) return
    this.#enqueuing = true
    // Callers that come in the same moment go along.
    await Promise.resolve()
    while (this.#arrivals.length > 0) {
      let arrived: Waiter[] = []
      try {
        const rows = await this.#insertArrivals(() => {
          arrived = [...arrived, ...this.#arrivals].filter(({ left }) => !left)
          this.#arrivals = []
          return arrived
        })
        for (const { token, place } of rows) {
          const waiter = this.#waiters.get(token)
          if (waiter !== undefined) this.#placed(waiter, place)
        }
        const gone = arrived.filter(({ left }) => left)
        if (gone.length > 0) this.#removeFromQueue(gone.map(({ token }) => token))
      } catch (error) {
        for (const waiter of arrived) this.#leave(waiter, error as Error)
        // Their rows may be there all the same.
        this.#removeFromQueue(arrived.map(({ token }) => token))
      }
      this.#lookIn(0)
    }
    this.#enqueuing = false
  }

  /**
   * Tries until the database has answered, or all have left. Those who come meanwhile go along. A row that is there already is the answer to
   * a try whose answer was lost.
   */
  async #insertArrivals(arrived: () => readonly Waiter[]): Promise<{ token: string; place: string }[]> {
    const unsure = new Set<string>()
    for (let attempt = 1; ; attempt++) {
      const waiters = arrived()
      const rows = waiters.map(({ key, token, plan }) => ({ name: key, token, holder: plan.holder }))
      const left = [...unsure].filter((token) => !this.#waiters.has(token))
      if (left.length > 0) this.#removeFromQueue(left)
      for (const token of left) unsure.delete(token)
      if (rows.length === 0) return []
      try {
        return await this.#rows(enqueueWaiter(this.#context.quotedSchema, rows, KEEP_MS))
      } catch (error) {
        if (!isUnreachable(error)) throw error
        for (const waiter of waiters) {
          unsure.add(waiter.token)
          this.#failed(waiter, error)
        }
      }
      await sleep(Math.min(PAUSE_MS * attempt, LOOK_MS))
    }
  }

  #placed(waiter: Waiter, place: string): void {
    if (waiter.place !== undefined) this.#queued.delete(waiter.place)
    waiter.place = place
    this.#queued.set(place, waiter)
  }

  #failed(waiter: Waiter, error: unknown): void {
    if (waiter.left) return
    waiter.progress.failed(error)
    this.#noted(waiter)
  }

  #leave(waiter: Waiter, error: Error): void {
    if (waiter.left) return
    waiter.left = true
    waiter.settle(error)
    waiter.progress.end()
    // One that is being asked for takes its row along, or releases what it got.
    if (!waiter.trying && waiter.place !== undefined) this.#removeFromQueue([waiter.token])
    if (this.#waiters.size === 0) this.#listener.leave(this.#hear)
  }

  #removeFromQueue(tokens: readonly string[]): void {
    // If the message fails, the rows are passed over when they are no longer kept alive.
    const telling = this.#rows(dequeueWaiter(this.#context.quotedSchema, tokens)).catch(() => undefined)
    void this.#background.track(telling)
  }

  /** A call for one that does not know its place yet is not missed: a look follows when it does. */
  #woken(place: string | undefined): void {
    const waiter = place === undefined ? undefined : this.#queued.get(place)
    if (waiter !== undefined) void this.#try(waiter)
    else if (place === undefined) this.#lookIn(0)
  }

  /** A caller of this process has released one: where LISTEN does not work, this is the notification. */
  released(key: Key): void {
    if (this.#listener.hears) return
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
    const queued = [...this.#waiters.values()].filter(({ place }) => place !== undefined)
    if (queued.length === 0) return
    this.#looking = true
    let next = this.#listener.hears ? LOOK_MS : LOOK_WITHOUT_LISTEN_MS
    try {
      const asked = queued.map(({ token, plan }) => ({ token, permits: plan.permits }))
      const rows = await this.#rows<LookRow>(look(this.#context.quotedSchema, asked, KEEP_MS))
      const seen = new Set(rows.map(({ token }) => token))
      for (const { token, ready, left } of rows) {
        const waiter = this.#waiters.get(token)
        if (waiter === undefined) continue
        if (ready === 'true') {
          void this.#try(waiter)
          continue
        }
        if (left !== null) next = Math.min(next, Number(left) + AFTER_END_MS)
        waiter.progress.heardAgain()
        this.#noted(waiter)
      }
      // Its row was passed over and cleaned away while this process was stopped: it goes to the end of the queue.
      const lost = queued.filter((waiter) => {
        return !waiter.left && !waiter.trying && !seen.has(waiter.token) && !this.#arrivals.includes(waiter)
      })
      if (lost.length > 0) {
        this.#arrivals.push(...lost)
        void this.#enqueueArrivals()
      }
    } catch (error) {
      next = LOOK_MS
      for (const waiter of queued) this.#failed(waiter, error)
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
        const taken = await takeLease(this.#context, this.#background, waiter)
        if (taken.granted) {
          if (waiter.left) {
            void this.#background.track(releaseLease(this.#context, waiter.key, waiter.token, waiter.plan.ttlMs))
            return
          }
          waiter.left = true
          waiter.settle(taken.grant)
          if (this.#waiters.size === 0) this.#listener.leave(this.#hear)
          return
        }
        this.#noted(waiter)
      } while (waiter.again && !waiter.left)
      if (waiter.left) this.#removeFromQueue([waiter.token])
    } catch (error) {
      this.#leave(waiter, error as Error)
      this.#removeFromQueue([waiter.token])
    } finally {
      waiter.trying = false
    }
  }

  async #rows<Row>(text: string): Promise<Row[]> {
    const results = await send(this.#context.driver, LIMITS, (connection) => connection.script(text))
    return results.flatMap((result) => result.rows as unknown as Row[])
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#listener.leave(this.#hear)
  }
}

function ended({ key, plan, budget, progress }: Waiter): Error {
  return budget.aborted ? waitAborted(key, plan.signal) : progress.error(budget.waitedMs)
}

/** The error for a wait that was ended from outside: by the caller's signal, or by closing. */
export function waitAborted(key: Key, signal: AbortSignal | undefined): LockAbortedError | LockstepClosedError {
  if (signal?.aborted !== true) return closedError([key])
  return new LockAbortedError(`The lease on ${key} was given up: the caller's signal was aborted.`, {
    advice: 'Nothing is held; call again if you still need it.',
    keys: [key],
    cause: signal.reason,
  })
}
