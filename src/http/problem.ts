import type { Answer, Header } from './guard.ts'

/** Stable names: clients compare the `type`, never the text. */
export type ProblemName =
  | 'busy'
  | 'lost'
  | 'unavailable'
  | 'key-missing'
  | 'key-malformed'
  | 'key-reused'
  | 'running'
  | 'request-too-large'
  | 'request-too-deep'
  | 'request-unread'
  | 'response-too-large'

/** A problem document as of RFC 9457. */
export interface Problem {
  readonly type: `urn:pg-lockstep:problem:${ProblemName}`
  readonly title: string
  readonly status: number
  readonly detail: string
  /** Only with `revealHolder`. */
  readonly holder?: string
  /** Only with `revealHolder`: an ISO date. */
  readonly since?: string
}

const KINDS: Readonly<Record<ProblemName, readonly [status: number, title: string]>> = {
  busy: [409, 'Another request works on it'],
  lost: [503, 'The work was interrupted'],
  unavailable: [503, 'The database is busy'],
  'key-missing': [400, 'Idempotency-Key is missing'],
  'key-malformed': [400, 'Idempotency-Key is malformed'],
  'key-reused': [422, 'Idempotency-Key was used for another request'],
  running: [409, 'The first request with this Idempotency-Key is still running'],
  'request-too-large': [413, 'The request is too large'],
  'request-too-deep': [400, 'The request is nested too deeply'],
  'request-unread': [415, 'The body of the request was not read'],
  'response-too-large': [500, 'The response is too large to be stored'],
}

/** Extras of a problem; `retryAfterMs` becomes whole seconds, at least one. */
export interface ProblemExtras {
  readonly retryAfterMs?: number
  readonly holder?: string | undefined
  readonly since?: Date | undefined
  readonly members?: Readonly<Record<string, unknown>> | undefined
}

export function problem(name: ProblemName, detail: string, extras: ProblemExtras = {}): Answer {
  const [status, title] = KINDS[name]
  const { holder, since, retryAfterMs, members } = extras
  const document: Problem = {
    ...members,
    type: `urn:pg-lockstep:problem:${name}`,
    title,
    status,
    detail,
    ...(holder !== undefined && { holder }),
    ...(since !== undefined && { since: since.toISOString() }),
  }
  const headers: Header[] = [['content-type', 'application/problem+json']]
  if (retryAfterMs !== undefined) headers.push(['retry-after', String(Math.max(1, Math.ceil(retryAfterMs / 1000)))])
  return { status, headers, body: Buffer.from(JSON.stringify(document)) }
}
