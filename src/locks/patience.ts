import {
  type LockHolder,
  LockAborted,
  LockstepClosed,
  type LockstepError,
  LockTimeout,
  type WaitStage,
} from '../errors.ts'
import { onAbort } from '../postgres/index.ts'
import type { Closing } from './closing.ts'
import type { LockSet } from './lockSet.ts'

/** How long a caller that does not wait for locks waits for a connection to ask through. */
const ASKS_ONCE_MS = 1000

/**
 * How long one caller is willing to wait, in all places together: its `waitMs`, its `signal`, and the library's own closing.
 */
export class Patience {
  /** Where the caller is waiting now. */
  stage: WaitStage = 'process'
  readonly #startedAt = performance.now()
  readonly #waitMs: number | false
  readonly #caller: AbortSignal | undefined
  readonly #closing: Closing
  /** Made by the first who waits: most callers never do. */
  #listeners: Set<() => void> | undefined
  #timer: NodeJS.Timeout | undefined
  #stopHearingClosing: (() => void) | undefined
  #forgetCaller: (() => void) | undefined
  #ended = false
  #end: (() => void) | undefined

  constructor(waitMs: number | false, caller: AbortSignal | undefined, closing: Closing) {
    this.#waitMs = waitMs
    this.#caller = caller
    this.#closing = closing
  }

  /**
   * Calls back once when the patience ends for any reason, at once if it has ended. The answer takes it back.
   */
  onEnd(listener: () => void): () => void {
    if (this.#ended || this.aborted || this.#timeLeftMs() <= 0) {
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
    const tell = (): void => {
      forget()
      listener()
    }
    const stopHearing = this.#closing.onClose(tell)
    const forgetCaller = this.#caller && onAbort(this.#caller, tell)
    const forget = (): void => {
      forgetCaller?.()
      stopHearing()
    }
    return forget
  }

  /** `waitMs: 0`: the caller does not wait for anybody's lock, but for a connection to ask through it must. */
  get asksOnce(): boolean {
    return this.#waitMs === 0
  }

  get waitedMs(): number {
    return performance.now() - this.#startedAt
  }

  remainingMs(): number {
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

  /** The error that tells the caller how its wait ended. */
  failure(stage: WaitStage, locks: LockSet, holders: readonly LockHolder[] = [], cause?: unknown): LockstepError {
    const keys = locks.map((lock) => lock.key)
    const named = keys.length === 0 ? 'The transaction' : `The lock on ${keys.join(', ')}`
    if (this.#caller?.aborted === true) {
      return new LockAborted(`${named} was given up: the caller's signal was aborted.`, {
        advice: 'Nothing is held; ask again when it is wanted again.',
        keys,
        cause: this.#caller.reason,
      })
    }
    if (this.#closing.closed) return closedError(keys)
    const waitedMs = Math.round(this.waitedMs)
    return new LockTimeout(`${named} was not granted within ${waitedMs} ms${described(stage, holders)}.`, {
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
    this.#stopHearingClosing = this.#closing.onClose(end)
    if (this.#waitMs !== false) this.#timer = setTimeout(end, this.#timeLeftMs())
  }

  /** What is left until the clock ends it. */
  #timeLeftMs(): number {
    return this.asksOnce ? ASKS_ONCE_MS - this.waitedMs : this.remainingMs()
  }

  #disarm(): void {
    clearTimeout(this.#timer)
    this.#forgetCaller?.()
    this.#stopHearingClosing?.()
  }

  #finish(): void {
    this.#ended = true
    this.#disarm()
    for (const listener of this.#listeners ?? []) listener()
    this.#listeners?.clear()
  }
}

/** The error for calls after `close()`, and for those that were still queued. */
export function closedError(keys: readonly string[] = []): LockstepClosed {
  return new LockstepClosed('This Lockstep was closed.', {
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
  return 'Nothing is held. Make the transaction under this key shorter, allow a longer waitMs, or see `holders` for who is in the way.'
}
