import { LockAbortedError, LockTimeoutError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { onAbort } from '../postgres/index.ts'

/** One call, from its coming to its answer. */
export interface Call<Item, Result> {
  readonly item: Item
  readonly enqueuedAt: number
  readonly resolve: (result: Result) => void
  readonly reject: (error: unknown) => void
  /** Stops listening to the caller's signal. */
  forget: (() => void) | undefined
  waiting: boolean
}

/** All queues of one function. */
export interface QueueTotals {
  waiting: number
  /** Sets a timer that belongs to no caller: it would keep that caller's context alive. */
  setTimer(fn: () => void, ms: number): NodeJS.Timeout
}

/** The calls that wait for the next batch of one key, in the order of their coming. */
export class CallQueue<Item, Result> {
  readonly key: Key
  /** How many wait. */
  waiting = 0
  /** Called when the last waiting call has left. */
  onEmpty: (() => void) | undefined
  readonly #waitMs: number | false
  readonly #totals: QueueTotals
  #calls: Call<Item, Result>[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(key: Key, waitMs: number | false, totals: QueueTotals) {
    this.key = key
    this.#waitMs = waitMs
    this.#totals = totals
  }

  enter(item: Item, signal: AbortSignal | undefined): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      const call: Call<Item, Result> = {
        item,
        enqueuedAt: performance.now(),
        resolve,
        reject,
        forget: undefined,
        waiting: true,
      }
      if (signal !== undefined) {
        call.forget = onAbort(signal, () => this.#rejectCall(call, abortedCall(this.key, signal)))
      }
      this.#calls.push(call)
      this.waiting++
      this.#totals.waiting++
      this.#watch()
    })
  }

  /** Takes the next ones out of the queue. */
  take(max: number): Call<Item, Result>[] {
    const taken: Call<Item, Result>[] = []
    let index = 0
    for (; index < this.#calls.length && taken.length < max; index++) {
      const call = this.#calls[index] as Call<Item, Result>
      if (!call.waiting) continue
      this.#leave(call)
      taken.push(call)
    }
    this.#calls = index === this.#calls.length ? [] : this.#calls.slice(index)
    return taken
  }

  /** Rejects all waiting calls. */
  rejectAll(error: unknown): void {
    for (const call of this.take(Infinity)) call.reject(error)
  }

  /** No call will come any more. */
  end(): void {
    clearTimeout(this.#timer)
  }

  #leave(call: Call<Item, Result>): void {
    call.waiting = false
    call.forget?.()
    call.forget = undefined
    this.waiting--
    this.#totals.waiting--
  }

  #rejectCall(call: Call<Item, Result>, error: unknown): void {
    if (!call.waiting) return
    this.#leave(call)
    call.reject(error)
    // Calls that have gone must not pile up while another process has the lock.
    if (this.#calls.length > 2 * this.waiting) this.#calls = this.#calls.filter((each) => each.waiting)
    if (this.waiting === 0) this.onEmpty?.()
  }

  /** All wait equally long, so the first in the queue is the first to give up: one timer is enough. */
  #watch(): void {
    if (this.#waitMs === false || this.#timer !== undefined) return
    this.#timer = this.#totals.setTimer(() => this.#rejectLate(this.#waitMs as number), this.#waitMs)
  }

  #rejectLate(waitMs: number): void {
    this.#timer = undefined
    const now = performance.now()
    for (const call of this.#calls) {
      if (!call.waiting) continue
      const leftMs = call.enqueuedAt + waitMs - now
      if (leftMs > 0) {
        this.#timer = this.#totals.setTimer(() => this.#rejectLate(waitMs), leftMs)
        return
      }
      this.#rejectCall(call, lateCall(this.key, now - call.enqueuedAt))
    }
  }
}

function abortedCall(key: Key, signal: AbortSignal): LockAbortedError {
  return new LockAbortedError(`The call on ${key} was given up: its signal was aborted.`, {
    advice: 'Nothing was done for it; call again if you still need it.',
    keys: [key],
    cause: signal.reason,
  })
}

function lateCall(key: Key, waitedMs: number): LockTimeoutError {
  return new LockTimeoutError(`The call on ${key} was in no batch within ${Math.round(waitedMs)} ms.`, {
    advice: 'Nothing was done for it. Make `run` faster, or allow a longer waitMs.',
    keys: [key],
    waitedMs,
    waitedFor: 'process',
    holders: [],
  })
}
