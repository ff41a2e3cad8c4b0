import { type LockHolder, LockAborted, LockstepClosed, type LockstepError, LockTimeout, type WaitStage } from '../errors.ts'
import type { LockSet } from './lockSet.ts'

const TIME_IS_UP = Symbol('time is up')
const CLOSING = Symbol('closing')

/**
 * How long one caller is willing to wait, in all places together: its `waitMs`, its `signal`, and the library's own closing.
 */
export class Patience {
  readonly #startedAt = performance.now()
  readonly #waitMs: number | false
  readonly #caller: AbortSignal | undefined
  readonly #closing: AbortSignal
  #controller: AbortController | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(waitMs: number | false, caller: AbortSignal | undefined, closing: AbortSignal) {
    this.#waitMs = waitMs
    this.#caller = caller
    this.#closing = closing
  }

  /** Aborts when the patience ends for any reason. Made on first use: most callers never wait. */
  get signal(): AbortSignal {
    if (this.#controller !== undefined) return this.#controller.signal
    this.#controller = new AbortController()
    if (this.#caller?.aborted === true) this.#onCallerAbort()
    else if (this.#closing.aborted) this.#onClosing()
    else {
      this.#caller?.addEventListener('abort', this.#onCallerAbort, { once: true })
      this.#closing.addEventListener('abort', this.#onClosing, { once: true })
      if (this.#waitMs !== false) {
        this.#timer = setTimeout(() => this.#controller?.abort(TIME_IS_UP), Math.max(0, this.remainingMs()))
      }
    }
    return this.#controller.signal
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
    return this.#caller?.aborted === true || this.#closing.aborted
  }

  /** The error that tells the caller how its wait ended. */
  failure(stage: WaitStage, locks: LockSet, holders: readonly LockHolder[] = []): LockstepError {
    const keys = locks.map((lock) => lock.key)
    const named = keys.length === 0 ? 'The transaction' : `The lock on ${keys.join(', ')}`
    if (this.#caller?.aborted === true) {
      return new LockAborted(`${named} was given up: the caller's signal was aborted.`, {
        advice: 'Nothing is held; ask again when it is wanted again.',
        keys,
        cause: this.#caller.reason,
      })
    }
    if (this.#closing.aborted) return closedError(keys)
    const waitedMs = Math.round(this.waitedMs)
    return new LockTimeout(`${named} was not granted within ${waitedMs} ms${described(stage, holders)}.`, {
      advice: adviceFor(stage),
      keys,
      waitedMs,
      waitedFor: stage,
      holders,
    })
  }

  dispose(): void {
    clearTimeout(this.#timer)
    if (this.#controller === undefined) return
    this.#caller?.removeEventListener('abort', this.#onCallerAbort)
    this.#closing.removeEventListener('abort', this.#onClosing)
  }

  readonly #onCallerAbort = (): void => this.#controller?.abort(this.#caller?.reason)
  readonly #onClosing = (): void => this.#controller?.abort(CLOSING)
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
  const who = holder.application === undefined ? `backend ${holder.pid}` : `backend ${holder.pid} (${holder.application})`
  const since = holder.openForMs === undefined ? '' : `, its transaction open for ${holder.openForMs} ms`
  return `: ${who} holds ${holder.key}${since}`
}

function adviceFor(stage: WaitStage): string {
  if (stage === 'connection') return 'Nothing is held. Make the pool larger, or the transactions shorter.'
  return 'Nothing is held. Make the transaction under this key shorter, allow a longer waitMs, or see `holders` for who is in the way.'
}
