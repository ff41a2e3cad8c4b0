import type { CallHandler, ExecutionContext } from '@nestjs/common'
import { lastValueFrom, Observable, type Subscriber } from 'rxjs'
import {
  type Answer,
  type Guard,
  type HeldAnswer,
  holdAnswer,
  incomingOf,
  isReply,
  mute,
  type ParsedRequest,
  problem,
  rawResponse,
  type ResponseOrReply,
} from '../http/index.ts'
import { InvalidOptionError } from '../index.ts'
import { give, takeBack } from './parameters.ts'

/** If the client is gone and there is no answer after this time, there will be none. */
const NO_ANSWER_MS = 10_000

/** Runs the handler under a guard. See N2 to N5. */
export function answerUnder<Request extends ParsedRequest>(
  guard: Guard<Request, unknown>,
  context: ExecutionContext,
  next: CallHandler,
): Observable<unknown> {
  if (context.getType() !== 'http') {
    throw new InvalidOptionError(`A handler of ${context.getType()} has a guard for HTTP.`, {
      advice: 'Use lockstep.transaction() or lockstep.lease() in the handler.',
    })
  }
  const http = context.switchToHttp()
  const request = http.getRequest<Request>()
  return new Observable((subscriber) => {
    const run = new GuardedRun(guard, request, http.getResponse<ResponseOrReply>(), next, subscriber)
    void run.run((error) => forward(error, http.getResponse(), http.getNext()))
    return () => run.unsubscribed()
  })
}

/** The value was passed on, and Nest's pipeline is over: an error goes to the exception filters of the application by way of the platform. */
function forward(error: unknown, response: ResponseOrReply, next: ((error: unknown) => void) | undefined): void {
  if (isReply(response)) response.send(error)
  else next?.(error)
}

/** Nest has answered, and PostgreSQL has refused the COMMIT. */
class AnsweredAlreadyError extends Error {}

/** An interceptor around the handler has given up on it. */
class AbandonedError extends Error {}

class GuardedRun<Request extends ParsedRequest> {
  readonly #guard: Guard<Request, unknown>
  readonly #request: Request
  readonly #response: ResponseOrReply
  readonly #held: HeldAnswer
  readonly #next: CallHandler
  readonly #subscriber: Subscriber<unknown>
  /** The value was passed on: Nest answers. */
  #emitted = false
  /** A value or an error was passed on. */
  #settled = false
  #abandoned = false
  #released = false

  constructor(
    guard: Guard<Request, unknown>,
    request: Request,
    response: ResponseOrReply,
    next: CallHandler,
    subscriber: Subscriber<unknown>,
  ) {
    this.#guard = guard
    this.#request = request
    this.#response = response
    this.#held = holdAnswer(response, guard.wholeUpTo)
    this.#next = next
    this.#subscriber = subscriber
  }

  async run(onLateError: (error: unknown) => void): Promise<void> {
    let value: unknown
    try {
      const verdict = await this.#guard.handle(incomingOf(this.#request), async (given) => {
        value = await this.#attempt(given)
        if (this.#guard.wholeUpTo === undefined) return this.#held
        this.#emit(value)
        await this.#nestHasAnswered()
        return this.#held
      })
      if (this.#abandoned) return
      if (verdict !== 'own') this.#answerWith(verdict)
      else if (this.#emitted) this.#held.letGo()
      else this.#answerWithValue(value)
    } catch (error) {
      if (this.#abandoned) return
      if (error instanceof AnsweredAlreadyError) this.#answerWith(conflictAtCommit())
      else {
        this.#held.discard()
        if (this.#emitted) onLateError(error)
        else this.#fail(error)
      }
    } finally {
      this.#release()
    }
  }

  /** Where the value was passed on, this is no news. Otherwise an interceptor around the handler answers in its place, and at once. */
  unsubscribed(): void {
    if (this.#settled) return
    this.#abandoned = true
    this.#held.discard()
  }

  #release(): void {
    if (this.#released) return
    this.#released = true
    takeBack(this.#request)
  }

  async #attempt(given: unknown): Promise<unknown> {
    if (this.#emitted) throw new AnsweredAlreadyError()
    if (this.#abandoned) throw new AbandonedError()
    this.#held.begin()
    give(this.#request, given)
    const handled = lastValueFrom<unknown, undefined>(this.#next.handle(), { defaultValue: undefined })
    const value = await (this.#held.failed === undefined ? handled : Promise.race([handled, this.#held.failed]))
    // What it did is not wanted any more; and it has ended, so nothing of it continues without its lease.
    if (this.#abandoned) throw new AbandonedError()
    return value
  }

  #fail(error: unknown): void {
    this.#settled = true
    // Before the error continues: an interceptor around may subscribe again at once.
    this.#release()
    this.#subscriber.error(error)
  }

  #emit(value: unknown): void {
    this.#emitted = true
    this.#settled = true
    this.#subscriber.next(value)
    this.#subscriber.complete()
  }

  async #nestHasAnswered(): Promise<void> {
    const raw = rawResponse(this.#response)
    let timer: NodeJS.Timeout | undefined
    let giveUp: () => void = () => undefined
    const givenUp = new Promise<void>((resolve) => (giveUp = resolve))
    const wait = (): void => {
      timer = setTimeout(giveUp, NO_ANSWER_MS)
    }
    if (raw.closed) wait()
    else raw.once('close', wait)
    await Promise.race([this.#held.answered, givenUp])
    raw.removeListener('close', wait)
    clearTimeout(timer)
  }

  /** COMMIT is done, or the lease released: Nest can answer, unless the handler has, with `@Res()`. */
  #answerWithValue(value: unknown): void {
    if (this.#held.isAnswered) this.#held.letGo()
    else this.#held.handBack()
    this.#emit(value)
  }

  #answerWith(answer: Answer): void {
    this.#held.replaceWith(answer)
    mute(this.#response)
    if (!this.#emitted) this.#emit(undefined)
  }
}

function conflictAtCommit(): Answer {
  const detail = 'Another transaction was in the way at COMMIT. Nothing was done. Try again.'
  return problem('unavailable', detail, { retryAfterMs: 1000 })
}
