import type { ContentfulStatusCode } from 'hono/utils/http-status'
import type { ProblemName } from 'pg-lockstep/http'

interface Kind {
  readonly status: ContentfulStatusCode
  readonly title: string
  /** When a client gets it, and what it can do: for the API document and docs/guides/desk.md, which a test compares with this table. */
  readonly meaning: string
}

const kind = (status: ContentfulStatusCode, title: string, meaning: string): Kind => ({ status, title, meaning })

/** What the library itself answers. No route of the desk requires an Idempotency-Key, and Hono keeps every body that was read. */
const OF_LIBRARY = {
  busy: kind(
    409,
    'Another request works on it',
    'another request works on the same thing; ask again after `Retry-After`. Of an instance, `work` names request, task and since when',
  ),
  running: kind(
    409,
    'The first request with this Idempotency-Key is still running',
    'the first request with this `Idempotency-Key` is still running; ask again after `Retry-After` to get its answer',
  ),
  lost: kind(
    503,
    'The work was interrupted',
    'the lease was lost while the request ran; ask again, with the same `Idempotency-Key`',
  ),
  unavailable: kind(503, 'Not just now', 'no connection or no database in time; ask again after `Retry-After`'),
  'key-malformed': kind(
    400,
    'Idempotency-Key is malformed',
    '`Idempotency-Key` is not 1 to 255 printable characters without spaces',
  ),
  'key-reused': kind(
    422,
    'Idempotency-Key was used for another request',
    'the `Idempotency-Key` came with another request before; use a new one',
  ),
  'request-too-large': kind(413, 'The request is too large', 'a body can have 64 kB at most'),
  'request-too-deep': kind(400, 'The request is nested too deeply', 'the JSON of the body has too many levels'),
  'response-too-large': kind(
    500,
    'The response is too large to be stored',
    'the answer is too large to be stored for a retry; the request had no effect',
  ),
} satisfies Record<Exclude<ProblemName, 'key-missing' | 'request-unread'>, Kind>

/** Everything that the desk refuses with, by its code. */
export const PROBLEMS = {
  ...OF_LIBRARY,
  'invalid-request': kind(400, 'The request is not valid', '`fields` says where, which and why'),
  'malformed-json': kind(400, 'The body is not JSON', 'the body is missing, or is not JSON'),
  'invalid-id': kind(400, 'An id cannot be used', 'an id has characters that a key cannot have'),
  'token-missing': kind(401, 'A token is needed', 'the desk was started with `--token`: send it as a bearer'),
  'wrong-host': kind(403, 'Not under this name', 'without a token the desk answers under 127.0.0.1 and localhost only'),
  'cross-site': kind(403, 'Not from there', 'without a token a page of another site can change nothing'),
  'not-found': kind(404, 'There is no such thing', 'nothing has this path or this id'),
  opening: kind(409, 'The position is being opened', 'it cannot be closed yet; ask again after `Retry-After`'),
  closing: kind(
    409,
    'The position is being closed',
    'a new one can be opened afterwards; ask again after `Retry-After`',
  ),
  'process-ended': kind(409, 'The process has ended', 'the instance has taken all its steps, or was cancelled'),
  'already-charged': kind(409, 'It is charged already', 'the instance cannot be cancelled any more'),
  'bid-too-low': kind(409, 'The bid is not high enough', '`leading` and `reserve` say what a bid has to exceed'),
  'auction-closed': kind(409, 'The auction is closed', 'it takes no bids any more'),
  'step-mismatch': kind(
    412,
    'It is at another step',
    '`If-Match` or `from` names another state than the instance is in; `state` says which that is',
  ),
  'unsupported-media-type': kind(415, 'The body has another type', 'the desk reads `application/json` only'),
  'insufficient-funds': kind(422, 'Not enough money', 'the account or wallet has less than that'),
  'refused-by-exchange': kind(
    422,
    'The exchange refused',
    '`reason` says why; there is no position, and nothing is left at the exchange',
  ),
  'webhook-unverified': kind(
    401,
    'The webhook is not signed',
    'with `--sink webhook`: the signature is not that of the secret',
  ),
  'history-diverged': kind(
    409,
    'The event is of another history',
    'with `--sink webhook`: the sender was restored from a backup',
  ),
  'webhook-early': kind(
    425,
    'An event is missing before it',
    'with `--sink webhook`: the sender tries again, in order',
  ),
  internal: kind(500, 'Something went wrong here', 'the request id finds it in the log'),
  'outcome-unknown': kind(
    503,
    'The outcome is not known',
    'COMMIT got no answer; ask again with the same `Idempotency-Key` to find out',
  ),
  'exchange-away': kind(
    503,
    'The exchange gives no answer',
    'what it has executed is completed once it answers; an entry that it has not executed is not executed later',
  ),
  'signal-expired': kind(
    503,
    'The signal is too old',
    'nothing was executed, and nothing will be; send the signal again',
  ),
  'too-many-bids': kind(503, 'Not just now', 'too many bids wait for this auction; ask again after `Retry-After`'),
  'not-ready': kind(503, 'Not ready', 'of `/ready`: send requests to another process'),
} satisfies Record<string, Kind>

export type ProblemCode = keyof typeof PROBLEMS

/** One line each, as the API document and the guide show them. */
export function problemTable(): string[] {
  return Object.entries<Kind>(PROBLEMS)
    .toSorted(([, one], [, other]) => one.status - other.status)
    .map(([code, { status, meaning }]) => `| ${status} | \`${code}\` | ${meaning} |`)
}
