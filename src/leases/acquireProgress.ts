import { ConnectionLostError, LeaseHeldError, LockTimeoutError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { leaseRefused, leaseUnreachable } from '../observe/index.ts'
import { meansConnectionLost, meansNoConnection } from '../postgres/index.ts'
import type { LeasePlan } from './options.ts'

/** Who is in the way. */
export interface Blocker {
  readonly holder: string | undefined
  readonly since: Date | undefined
  /** Until the holder's lease ends, if it is not renewed. */
  readonly leftMs: number
  /** No holder is known, but the server was promoted a moment ago and the row of a holder can be missing. */
  readonly afterFailover?: boolean
}

/** An answer that is older than this says nothing about the end of a wait. Waiters look at least every second. */
const FRESH_MS = 2000

/**
 * What one call has heard from the database. Only the database can answer "held": a call that ends without one, or that
 * could not ask again after it, ends with a connection error. States: nothing heard → heard → failed since → heard …
 */
export class AcquireProgress {
  readonly #schema: string
  readonly #key: Key
  readonly #plan: LeasePlan
  /** What the question that is on its way waits for. */
  #waitsFor: 'connection' | 'answer' = 'connection'
  #heard: { readonly by: Blocker; readonly at: number } | undefined
  #failure: unknown
  /** The call of this process whose question comes before. */
  #behind: AcquireProgress | undefined
  #ended = false
  #onEnd: (() => void) | undefined

  constructor(schema: string, key: Key, plan: LeasePlan) {
    this.#schema = schema
    this.#key = key
    this.#plan = plan
  }

  /** Until the call asks for itself, what stops the one before stops this one. */
  goBehind(first: AcquireProgress): void {
    this.#behind = first
  }

  connecting(): void {
    this.#behind = undefined
    this.#waitsFor = 'connection'
  }

  asking(): void {
    this.#waitsFor = 'answer'
  }

  /** The database said that others have it, or are ahead. */
  heard(by: Blocker): void {
    if (this.#heard === undefined) this.#reportRefused(by)
    this.#heard = { by, at: performance.now() }
    this.#failure = undefined
  }

  /** As before: others have it still. */
  heardAgain(): void {
    this.heard(this.#heard?.by ?? AHEAD)
  }

  /** It could not be asked this time. */
  failed(error: unknown): void {
    this.#failure = error
    this.#reportUnreachable(error)
  }

  #reportUnreachable(error: unknown): void {
    if (!leaseUnreachable.hasSubscribers) return
    leaseUnreachable.publish({ schema: this.#schema, key: this.#key, holder: this.#plan.holder, error })
  }

  #reportRefused({ holder: heldBy, leftMs }: Blocker): void {
    if (!leaseRefused.hasSubscribers) return
    const { holder, waitMs } = this.#plan
    leaseRefused.publish({ schema: this.#schema, key: this.#key, holder, heldBy, leftMs, waits: waitMs !== 0 })
  }

  /** Whether the database has said anything in this call. */
  get isAnswered(): boolean {
    return this.#heard !== undefined
  }

  /** Who was in the way at the last answer, if known. */
  get heldBy(): string | undefined {
    return this.#heard?.by.holder
  }

  /** Whether it is known at this moment how the wait would end; if not, it is worth asking once more. */
  get isDecided(): boolean {
    return this.#failure !== undefined || this.#isHeld
  }

  get #isHeld(): boolean {
    if (this.#heard === undefined || this.#failure !== undefined) return false
    return performance.now() - this.#heard.at <= FRESH_MS
  }

  /** Once the caller has its answer, nothing more is asked for it. */
  get ended(): boolean {
    return this.#ended
  }

  onEnd(listener: () => void): void {
    this.#onEnd = listener
  }

  end(): void {
    if (this.#ended) return
    this.#ended = true
    this.#onEnd?.()
  }

  /** Ends the call without the lease, and says why. */
  giveUp(waitedMs: number): Error {
    const error = this.error(waitedMs)
    // What failed before was reported when it did.
    if (this.#failure === undefined && isUnreachable(error)) this.#reportUnreachable(error)
    this.end()
    return error
  }

  /** The error for a call that ends now without the lease. */
  error(waitedMs: number): Error {
    if (this.#isHeld) return leaseHeld(this.#key, this.#heard?.by ?? AHEAD, waitedMs)
    const { waitsFor, failure } = this.#trouble()
    if (failure !== undefined && !isUnreachable(failure)) return failure as Error
    const within = `The database could not be asked for the lease on ${this.#key} within ${Math.round(waitedMs)} ms`
    const details = { keys: [this.#key], cause: failure }
    if (failure instanceof LockTimeoutError || (failure === undefined && waitsFor === 'connection')) {
      return new LockTimeoutError(
        `${within}: the pool had no free connection, or the server did not answer.${this.#lastAnswer()}`,
        {
          ...details,
          advice: 'Nothing is held, and it is not known whether others hold it. Try again, or make the pool larger.',
          waitedMs: Math.round(waitedMs),
          waitedFor: 'connection',
          holders: [],
        },
      )
    }
    return new ConnectionLostError(
      `${within}: the server could not be reached, or did not answer.${this.#lastAnswer()}`,
      {
        ...details,
        advice: 'It is not known whether it is held. If it was granted, Lockstep releases it. Try again.',
      },
    )
  }

  #trouble(): { readonly waitsFor: 'connection' | 'answer'; readonly failure: unknown } {
    if (this.#behind === undefined || this.#failure !== undefined) {
      return { waitsFor: this.#waitsFor, failure: this.#failure }
    }
    return this.#behind.#trouble()
  }

  #lastAnswer(): string {
    if (this.#heard === undefined) return ''
    const ago = Math.round(performance.now() - this.#heard.at)
    return ` Its last answer, ${ago} ms ago: held by ${nameOf(this.#heard.by)}.`
  }
}

/** In the way of a call that is in the queue, and received no more than that it is not its turn. */
const AHEAD: Blocker = { holder: undefined, since: undefined, leftMs: 0 }

/** Whether the database could not be asked, or the outcome of the message is unknown. */
export function isUnreachable(error: unknown): boolean {
  return meansNoConnection(error) || meansConnectionLost(error)
}

function nameOf({ holder }: Blocker): string {
  return holder ?? 'a caller that is ahead in the queue'
}

export function leaseHeld(key: Key, by: Blocker, waitedMs: number): LeaseHeldError {
  if (by.afterFailover) {
    return new LeaseHeldError(
      `The lease on ${key} is not granted for another ${Math.ceil(by.leftMs)} ms: the server was promoted or restored, and the row of a holder may have been lost.`,
      {
        advice:
          'Try again later, or wait with waitMs. If only a standby with every acknowledged commit is promoted, state it: migrate({ synchronousFailover: true }).',
        keys: [key],
        holder: undefined,
        since: undefined,
        leftMs: by.leftMs,
        waitedMs,
      },
    )
  }
  const waited = waitedMs > 0 ? ` The call waited ${Math.round(waitedMs)} ms.` : ''
  return new LeaseHeldError(`The lease on ${key} is held by ${nameOf(by)}.${waited}`, {
    advice: 'Try again later, or wait with waitMs.',
    keys: [key],
    holder: by.holder,
    since: by.since,
    leftMs: by.leftMs,
    waitedMs,
  })
}
