import { AsyncLocalStorage } from 'node:async_hooks'
import { type LockstepError, SavepointOpenError } from '../errors.ts'
import type { Closing } from '../locks/index.ts'

/** Without a limit of its own a transaction waits this long: its part may wait for what waits for it. */
const DEFAULT_TURN_MS = 30_000
/** A caller that does not wait for locks still has its statements wait for each other; so does one in a Lockstep that closes. */
const SHORT_TURN_MS = 1000

/** How long a statement waits for its turn. */
export interface TurnLimits {
  /** The transaction's own. */
  readonly waitMs: number | false
  readonly closing: Closing
}

/** A scope, in which another may be open. */
interface QueuedScope {
  readonly inner: { readonly label: string } | undefined
}

interface Waiter {
  start(): void
  refuse(error: LockstepError): void
}

/**
 * What waits until nothing is open inside a scope any more, in the order in which it came. Each wait has a limit: what it waits for may
 * wait for it in turn, as where a batch of two callers' queries is sent by the tx of one of them.
 */
export class TurnQueue {
  readonly #scope: QueuedScope
  readonly #limits: TurnLimits
  readonly #waiting = new Set<Waiter>()

  constructor(scope: QueuedScope, limits: TurnLimits) {
    this.#scope = scope
    this.#limits = limits
  }

  wait(start: () => void, refuse: (error: LockstepError) => void): void {
    const { waitMs, closing } = this.#limits
    const startedAt = performance.now()
    // Whose end it is that lets it continue says nothing of where it belongs.
    const inOwnContext = AsyncLocalStorage.snapshot()
    const giveUp = (): void => waiter.refuse(tookTooLong(this.#scope, performance.now() - startedAt))
    const stop = (): void => {
      clearTimeout(timer)
      forget()
      this.#waiting.delete(waiter)
    }
    const waiter: Waiter = {
      start() {
        stop()
        inOwnContext(start)
      },
      refuse(error) {
        stop()
        inOwnContext(refuse, error)
      },
    }
    const limitMs = waitMs === false ? DEFAULT_TURN_MS : Math.max(waitMs, SHORT_TURN_MS)
    let timer = setTimeout(giveUp, closing.closed ? Math.min(limitMs, SHORT_TURN_MS) : limitMs)
    const forget = closing.onClose(() => {
      clearTimeout(timer)
      const leftMs = limitMs - (performance.now() - startedAt)
      timer = setTimeout(giveUp, Math.min(leftMs, SHORT_TURN_MS))
    })
    this.#waiting.add(waiter)
  }

  /** Lets continue those whose turn it is: all, up to one that opens something inside the scope. */
  next(): void {
    for (const waiter of this.#waiting) {
      if (this.#scope.inner !== undefined) return
      waiter.start()
    }
  }

  refuse(reason: () => LockstepError): void {
    for (const waiter of this.#waiting) waiter.refuse(reason())
  }
}

const ADVICE =
  'Inside tx.savepoint(fn), use the tx that fn is given; inside a transaction that was begun on a client, use that client. Otherwise await the end of the one before the other.'

/** The error for a call of an outer tx from inside of what it would have to wait for. */
export function calledFromInside(inner: { readonly label: string }): SavepointOpenError {
  return new SavepointOpenError(`The outer tx was used inside ${inner.label}. It would wait for its own end.`, {
    advice: ADVICE,
    waitedMs: 0,
  })
}

function tookTooLong({ inner }: QueuedScope, elapsedMs: number): SavepointOpenError {
  const waitedMs = Math.round(elapsedMs)
  const what = inner?.label ?? 'a savepoint'
  return new SavepointOpenError(
    `A statement waited ${waitedMs} ms for the end of ${what}, which is still open inside its transaction. It was not sent: it would have become a part of that.`,
    { advice: ADVICE, waitedMs },
  )
}
