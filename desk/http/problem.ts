import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { type ProblemCode, PROBLEMS } from './problems.ts'

/** What a problem document may have beside its usual members. */
export interface ProblemExtras {
  readonly retryAfterSeconds?: number
  /** Further members of the document. */
  readonly members?: Readonly<Record<string, unknown>>
}

/**
 * Why a request is refused: a document as of RFC 9457. Thrown, it undoes the transaction that it was thrown in; answered, what was
 * done before it is kept, and an `Idempotency-Key` remembers the refusal.
 */
export class ProblemError extends Error {
  override readonly name = 'Problem'
  readonly code: ProblemCode
  readonly extras: ProblemExtras

  constructor(code: ProblemCode, detail: string, extras: ProblemExtras = {}) {
    super(detail)
    this.code = code
    this.extras = extras
  }

  get status(): ContentfulStatusCode {
    return PROBLEMS[this.code].status
  }

  /** It as an answer. */
  answer(c: Context): Response {
    const { retryAfterSeconds, members } = this.extras
    const document = {
      type: `urn:lockstep-desk:problem:${this.code}`,
      title: PROBLEMS[this.code].title,
      status: this.status,
      code: this.code,
      detail: this.message,
      instance: c.req.path,
      ...members,
    }
    return c.body(JSON.stringify(document), this.status, {
      'content-type': PROBLEM_TYPE,
      ...(retryAfterSeconds !== undefined && { 'retry-after': String(retryAfterSeconds) }),
    })
  }
}

export const PROBLEM_TYPE = 'application/problem+json'

export function notFound(what: string, id: string): ProblemError {
  return new ProblemError('not-found', `There is no ${what} ${JSON.stringify(id)}.`)
}
