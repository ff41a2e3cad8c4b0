import {
  type LockHolder,
  LockAbortedError,
  LockstepClosedError,
  type LockstepError,
  LockTimeoutError,
  type WaitStage,
} from '../errors.ts'
import { GRACE_MS, onAbort } from '../postgres/index.ts'
import type { Closing } from './closing.ts'
import type { LockSet } from './lockSet.ts'

/** How long a caller that does not wait for locks waits for a connection to ask through. */
const TRIES_ONCE_MS = 1000

/** A connection gets at least this much time for an answer before another one is tried. */
const MIN_TRY_MS = 500
/** And no more than this part of what is left. */
const TRY_SHARE = 0.25
/** How long a message may take that is sent after the end: to leave nothing behind, and to see who was in the way. */
export const AFTER_END_MS = 100

/**
 * How long one caller is willing to wait, in all places together: its `waitMs`, its `signal`, and the library's own closing.
 */
export class WaitBudget {
  /** Where the caller is waiting now. */
  stage: WaitStage = 'process'
  readonly #startedAt = performance.now()
  readonly #waitMs: number | false
  readonly #caller: AbortSignal | undefined
  readonly #closing: Closing
  /** The caller does not wait for a lock, but for a connection to ask through it must. */
  readonly triesOnce: boolean
  /** Made by the first who waits: most callers never do. */
  #listeners: Set<() => void> | undefined
  #timer: NodeJS.Timeout | undefined
  #stopListeningForClose: (() => void) | undefined
  #forgetCaller: (() => void) | undefined
  #ended = false
  #end: (() => void) | undefined

  /** `noWait`: all of `waitMs` is for a connection, none of it for a lock. With `waitMs: 0` that is a second. */
  constructor(waitMs: number | false, caller: AbortSignal | undefined, closing: Closing, noWait = false) {
    this.#waitMs = waitMs
    this.triesOnce = noWait || waitMs === 0
    this.#caller = caller
    this.#closing = closing
  }

  /**
   * Calls back once when the wait budget ends for any reason, at once if it has ended. The answer takes it back.
   */
  onEnd(listener: () => void): () => void {
    if (this.#ended || this.aborted || this.leftMs <= 0) {
      listener()
      return () => undefined
    }
    const listeners = (this.#listeners ??= new Set())
    if (listeners.size === 0) this.#arm()
    listeners.add(listener)
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0) this.#disarm()
    }
  }

  /** As `onEnd`, for an end that comes from outside: no clock is set. */
  onAbort(listener: () => void): () => void {
    if (this.aborted) {
      listener()
      return () => undefined
    }
    const notify = (): void => {
      forget()
      listener()
    }
    const stopHearing = this.#closing.onClose(notify)
    const forgetCaller = this.#caller && onAbort(this.#caller, notify)
    const forget = (): void => {
      forgetCaller?.()
      stopHearing()
    }
    return forget
  }

  /** As `onAbort`, for the caller's signal alone. Undefined where there is none. */
  onSignal(listener: () => void): (() => void) | undefined {
    return this.#caller && onAbort(this.#caller, listener)
  }

  /**
   * How long to wait for the answer to a message that the server may take `mayTakeMs` for. While there is time for another connection,
   * one that is silent gets a part of what is left; the last one gets all of it.
   */
  answerMs(mayTakeMs = 0): number {
    const { leftMs } = this
    if (leftMs <= 0 || this.aborted) return mayTakeMs + AFTER_END_MS
    const restMs = Math.max(0, leftMs - mayTakeMs)
    return mayTakeMs + (restMs < 2 * MIN_TRY_MS ? restMs + GRACE_MS : Math.max(MIN_TRY_MS, restMs * TRY_SHARE))
  }

  /** Whether the wait for a single answer may end before silence is suspicious: there is a signal, or hardly any time. */
  get mayHurry(): boolean {
    return this.#caller !== undefined || this.leftMs < 2 * MIN_TRY_MS
  }

  get waitedMs(): number {
    return performance.now() - this.#startedAt
  }

  /** How long until the clock ends it, be it for a connection alone. */
  get leftMs(): number {
    if (this.#waitMs === false) return Infinity
    return (this.#waitMs === 0 ? TRIES_ONCE_MS : this.#waitMs) - this.waitedMs
  }

  /** What is left for waiting for a lock. */
  remainingMs(): number {
    if (this.triesOnce) return 0
    return this.#waitMs === false ? Infinity : this.#waitMs - this.waitedMs
  }

  /** True once there is no point in waiting any longer. */
  get over(): boolean {
    return this.aborted || this.remainingMs() <= 0
  }

  /** True where the end came from outside: the caller's signal, or the library closing. */
  get aborted(): boolean {
    return this.#caller?.aborted === true || this.#closing.closed
  }

  /** The error that says how the wait ended. */
  failure(stage: WaitStage, locks: LockSet, holders: readonly LockHolder[] = [], cause?: unknown): LockstepError {
    const keys = locks.map((lock) => lock.key)
    const named = keys.length === 0 ? 'The transaction' : `The lock on ${keys.join(', ')}`
    if (this.#caller?.aborted === true) {
      return new LockAbortedError(`${named} was given up: the caller's signal was aborted.`, {
        advice: 'Nothing is held; call again if you still need it.',
        keys,
        cause: this.#caller.reason,
      })
    }
    if (this.#closing.closed) return closedError(keys)
    const waitedMs = Math.round(this.waitedMs)
    return new LockTimeoutError(`${named} was not granted within ${waitedMs} ms${described(stage, holders)}.`, {
      advice: adviceFor(stage),
      keys,
      waitedMs,
      waitedFor: stage,
      holders,
      cause,
    })
  }

  #arm(): void {
    const end = (this.#end ??= () => this.#finish())
    if (this.#caller !== undefined) this.#forgetCaller = onAbort(this.#caller, end)
    this.#stopListeningForClose = this.#closing.onClose(end)
    if (this.#waitMs !== false) this.#timer = setTimeout(end, this.leftMs)
  }

  #disarm(): void {
    clearTimeout(this.#timer)
    this.#forgetCaller?.()
    this.#stopListeningForClose?.()
  }

  #finish(): void {
    this.#ended = true
    this.#disarm()
    for (const listener of this.#listeners ?? []) listener()
    this.#listeners?.clear()
  }
}

/** The error for calls after `close()`, and for those that were still queued. */
export function closedError(keys: readonly string[] = []): LockstepClosedError {
  return new LockstepClosedError('This Lockstep was closed.', {
    advice: 'Make a new one, or close it only after the last caller has its answer.',
    keys,
  })
}

function described(stage: WaitStage, holders: readonly LockHolder[]): string {
  if (stage === 'process') return ': callers of this process are ahead of it'
  if (stage === 'connection') return ': the pool had no free connection, or the server did not answer'
  const [holder] = holders
  if (holder === undefined) return ''
  const who =
    holder.application === undefined ? `backend ${holder.pid}` : `backend ${holder.pid} (${holder.application})`
  const since = holder.openForMs === undefined ? '' : `, its transaction open for ${holder.openForMs} ms`
  return `: ${who} holds ${holder.key}${since}`
}

function adviceFor(stage: WaitStage): string {
  if (stage === 'connection') return 'Nothing is held. Make the pool larger, or the transactions shorter.'
  return 'Nothing is held. Make the transaction under this key shorter, allow a longer waitMs, or look at `holders` to see who holds it.'
}
