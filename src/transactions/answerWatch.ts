import type { LockstepError } from '../errors.ts'
import type { WaitBudget } from '../locks/index.ts'
import { type Connection, GRACE_MS, type Pending, type SilenceWatch } from '../postgres/index.ts'
import type { Cancel } from './cancelRunning.ts'
import { abandonAfterAnswer } from './abandonOpening.ts'

/** The caller does not wait any more. Its connection is seen to, and not to be touched. */
export class AbandonedOpeningError extends Error {
  /** What the caller gets; undefined: what its budget says. */
  readonly failure: LockstepError | undefined

  constructor(failure?: LockstepError) {
    super('The connection was left behind.')
    this.failure = failure
  }
}

/**
 * Watches over the messages of one opening, one at a time. Three things end the wait for an answer: the silence of the server, the end
 * of the wait budget, and an abort. The last two give an answer that is on its way a moment to come; without one the state of the
 * connection is not known, and it is destroyed. An opening that has budget left gives a silent connection only a part of it, so that
 * there is some for the next one.
 */
export class AnswerWatch {
  readonly #silence: SilenceWatch
  readonly #budget: WaitBudget
  #pending: Pending | undefined
  #forget: (() => void) | undefined

  constructor(silence: SilenceWatch, budget: WaitBudget) {
    this.#silence = silence
    this.#budget = budget
  }

  /** The answer to a message that the server answers at once, for a caller that must not wait for it. */
  of<T>(connection: Connection, answer: Promise<T>, leaving: string): Promise<T> {
    return this.ofSlice(connection, 0, answer, leaving)
  }

  /** To be called before a message is sent that the server answers at once. */
  start(connection: Connection): void {
    const [silence, budget] = [this.#silence, this.#budget]
    const pending = silence.start(connection, 0, undefined, budget.answerMs(), budget)
    this.#pending = pending
    // Closing is looked for by the watch itself: to listen to it would cost every transaction something.
    this.#forget = budget.onSignal(() => silence.hurry(pending, GRACE_MS))
  }

  stop(): void {
    if (this.#pending !== undefined) this.#silence.stop(this.#pending)
    this.#forget?.()
    this.#forget = undefined
  }

  /**
   * The answer to a message that waits at the server for a slice of time. Where it is late and the caller will not wait, the caller gets
   * `AbandonedOpeningError` and the answer is waited for without it: a server that is merely slow keeps its connections, which would be missed
   * most where many wait. `leaving` undoes the message, `cancel` has the server end it.
   */
  ofSlice<T>(
    connection: Connection,
    sliceMs: number,
    answer: Promise<T>,
    leaving: string,
    cancel?: () => Cancel,
  ): Promise<T> {
    const [silence, budget] = [this.#silence, this.#budget]
    const endsAt = performance.now() + sliceMs
    return new Promise((resolve, reject) => {
      let cancelled: Cancel | undefined
      const giveUp = (): void => {
        this.stop()
        if (budget.aborted || budget.leftMs <= 0) {
          void abandonAfterAnswer(afterCancel(answer, connection, cancelled), connection, silence, leaving)
          return reject(new AbandonedOpeningError())
        }
        pending.outOfTime = pending.limited
        connection.destroy(true)
      }
      const pending = silence.start(connection, sliceMs, giveUp, budget.answerMs(sliceMs))
      this.#pending = pending
      this.#forget = budget.onAbort(() => {
        // What cannot be cancelled is given its slice: nothing else ends a wait that is in the server's queue.
        const cancellable = connection.memory?.pooled === false
        cancelled = cancel?.()
        silence.hurry(pending, (cancellable ? 0 : Math.max(0, endsAt - performance.now())) + GRACE_MS)
      })
      // Without an async function: every promise more costs each of these transactions a percent.
      const settle = (notify: () => void): void => {
        this.stop()
        const cancelling = cancelled?.settle()
        if (cancelling === undefined) notify()
        else void cancelling.catch(() => connection.destroy()).then(notify)
      }
      answer.then(
        (value) => settle(() => resolve(value)),
        (error: Error) => settle(() => reject(error)),
      )
    })
  }

  /** Whether the last message was not answered in the time that it was given, and another connection may do better. */
  get suggestsAnother(): boolean {
    return this.outOfTime && !this.#budget.aborted && this.#budget.leftMs > 0
  }

  /** Whether the last message was not answered in the time that it was given. Whether the server is silent is not known. */
  get outOfTime(): boolean {
    return this.#pending?.outOfTime === true
  }
}

/** The answer, once no cancel is on its way any more. */
async function afterCancel<T>(answer: Promise<T>, connection: Connection, cancelled: Cancel | undefined): Promise<T> {
  try {
    return await answer
  } finally {
    // A cancel whose answer is lost may still be on its way: no other caller may run a statement here.
    await cancelled?.settle()?.catch(() => connection.destroy())
  }
}
