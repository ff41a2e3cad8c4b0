import { InvalidKeyError, InvalidOptionError, LeaseBusyError, LockstepError, StreamNotParkedError } from '../index.ts'
import { codeOf, QUERY_CANCELED } from '../postgres/index.ts'
import type { Problem } from './wire.ts'

/** Of every answer. Nothing but our own files runs in the page, and no other site can put it into a frame. */
const GUARDS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
}

/** A file of the page, or a word on why there is none. */
export function answer(
  status: number,
  body: string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | null,
  headers: Readonly<Record<string, string>>,
): Response {
  return new Response(body, { status, headers: { ...GUARDS, ...headers } })
}

/** An answer of the API: it is not cached. */
export function json(value: unknown): Response {
  return answer(200, JSON.stringify(value), { 'content-type': 'application/json', 'cache-control': 'no-store' })
}

export function done(headers: Readonly<Record<string, string>> = {}): Response {
  return answer(204, null, { 'cache-control': 'no-store', ...headers })
}

export function refusal(
  status: number,
  code: string,
  title: string,
  detail: string,
  headers: Readonly<Record<string, string>> = {},
): Response {
  const problem: Problem = { status, code, title, detail }
  return answer(status, JSON.stringify(problem), {
    'content-type': 'application/problem+json',
    'cache-control': 'no-store',
    ...headers,
  })
}

/** A refusal that is found deep inside. */
export class RefusalError extends Error {
  override readonly name = 'RefusalError'
  readonly response: Response

  constructor(response: Response) {
    super('refused')
    this.response = response
  }
}

/** A failure of the library or of the database, as a problem. */
export function failure(error: unknown): Response {
  if (error instanceof RefusalError) return error.response
  if (codeOf(error) === QUERY_CANCELED) {
    return refusal(
      503,
      'took-too-long',
      'It took too long',
      'The server ended the search. Narrow the search: a stream, or a shorter time.',
    )
  }
  if (error instanceof LockstepError) {
    const status =
      error instanceof InvalidOptionError || error instanceof InvalidKeyError
        ? 400
        : error instanceof StreamNotParkedError || error instanceof LeaseBusyError
          ? 409
          : 503
    const title =
      status === 400
        ? 'This cannot be done'
        : status === 409
          ? 'Not in the current state'
          : 'The database is not available'
    return refusal(status, error.code, title, error.message)
  }
  return refusal(503, codeOf(error) ?? 'UNKNOWN', 'The database refused it', messageOf(error))
}

const MAX_MESSAGE_LENGTH = 500

/** The outcome of a request, in words. */
export function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  // An address with several addresses fails without a word.
  const code = codeOf(error)
  const text = message !== '' ? message : code === undefined ? 'The database does not answer.' : `No answer: ${code}.`
  return text.slice(0, MAX_MESSAGE_LENGTH)
}
