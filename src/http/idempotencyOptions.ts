import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import type { LeaseOptions } from '../leases/index.ts'
import type { TransactionOptions } from '../transactions/index.ts'

/** What both forms of `idempotent()` take. */
export interface IdempotentOptions<Request> {
  /**
   * The owner of the key: the user, the tenant, the owner of the API key. No request gets an answer from another scope, so this must be a
   * principal that the server has *verified*: from a session, a signed token, an API key that it looked up. Do not use a header, a
   * parameter or a field of the body that the client sets (`X-Tenant`): a client that sends another client’s name and key would get that
   * client’s stored answer. 1 to 255 bytes.
   */
  readonly scope: (request: Request) => string | Promise<string>
  /** Whether a request without the header is refused with 400. If not, it runs without protection. Default true. */
  readonly required?: boolean
  /**
   * More headers of the answer to store and replay. Always stored: those that describe the body, `location`, and those that protect its
   * reader, such as `content-security-policy` and `cache-control`. Cookies and credentials are refused. Default none.
   */
  readonly headers?: readonly string[]
  /** The largest body of a request and of an answer. Default 1 MiB. JSON has 1,000 levels at most. */
  readonly maxBodyBytes?: number
  /** How long an answer is kept and replayed. Default 24 hours. */
  readonly retainMs?: number
  /** The bytes that distinguish requests, if the framework’s own body does not. Default: the raw or the parsed body. */
  readonly body?: (request: Request) => Uint8Array | string | Promise<Uint8Array | string>
  /** The page that explains your API’s use of the header. Refusals link to it (`Link`, `rel="describedby"`), as the draft requires. */
  readonly documentation?: string
}

/** The transactional form: what the handler does with its `tx` and the stored answer are committed together. */
export interface TransactionalOptions<Request> extends IdempotentOptions<Request> {
  readonly form?: 'transaction'
  /** Locks that the handler needs; granted before its first read. */
  readonly lock?: (request: Request) => Key | readonly Key[] | Promise<Key | readonly Key[]>
  /**
   * Options as for `lockstep.transaction()`. `waitMs` is for a connection and for `lock`. It never waits for the lock of the key itself.
   */
  readonly transaction?: RequestTransaction
}

/** What of a transaction's options a request can choose. */
export type RequestTransaction = Pick<TransactionOptions, 'isolation' | 'retry' | 'waitMs'>

const REQUEST_TRANSACTION: OptionNames<RequestTransaction> = { isolation: true, retry: true, waitMs: true }

/** The plain form: the handler does what it wants, and the answer is stored after it. */
export interface PlainOptions<Request> extends IdempotentOptions<Request> {
  readonly form: 'plain'
  /** How the key is reserved while the handler runs. After a crash it is free again after `ttlMs`, by default 30,000. */
  readonly lease?: RequestLease
}

/** What of a lease's options a request can choose. */
export type RequestLease = Pick<LeaseOptions, 'ttlMs' | 'maxHoldMs' | 'holder' | 'metadata'>

const REQUEST_LEASE: OptionNames<RequestLease> = { ttlMs: true, maxHoldMs: true, holder: true, metadata: true }

const IDEMPOTENT_OPTIONS: OptionNames<IdempotentOptions<never> & { readonly form?: string }> = {
  form: true,
  scope: true,
  required: true,
  headers: true,
  maxBodyBytes: true,
  retainMs: true,
  body: true,
  documentation: true,
}

const TRANSACTIONAL_OPTIONS: OptionNames<TransactionalOptions<never>> = {
  ...IDEMPOTENT_OPTIONS,
  lock: 'never undefined',
  transaction: true,
}

const PLAIN_OPTIONS: OptionNames<PlainOptions<never>> = { ...IDEMPOTENT_OPTIONS, lease: true }

/** The checked options that both forms share. */
export interface IdempotencyPlan {
  readonly required: boolean
  readonly headers: ReadonlySet<string>
  readonly maxBodyBytes: number
  readonly retainMs: number
  /** The header `Link` of refusals. */
  readonly link: string | undefined
}

/** Without these a replay would be another answer: what the body is, where it leads, and what a reader may do with it. */
const ALWAYS = [
  'content-type',
  'content-encoding',
  'content-language',
  'content-location',
  'content-disposition',
  'content-range',
  'content-digest',
  'repr-digest',
  'location',
  'etag',
  'last-modified',
  'cache-control',
  'expires',
  'pragma',
  'vary',
  'content-security-policy',
  'content-security-policy-report-only',
  'cross-origin-embedder-policy',
  'cross-origin-opener-policy',
  'cross-origin-resource-policy',
  'origin-agent-cluster',
  'permissions-policy',
  'referrer-policy',
  'strict-transport-security',
  'x-content-type-options',
  'x-download-options',
  'x-frame-options',
  'x-permitted-cross-domain-policies',
  'x-robots-tag',
  'x-xss-protection',
]
/**
 * Credentials are not stored: they could be stolen from the table, and a replay would send them after they were revoked. What belongs
 * to one connection or one moment is not repeated.
 */
const NEVER =
  /^(set-cookie2?|cookie|(proxy-)?authorization|(proxy-|www-)?authenticate|(proxy-)?authentication-info|.*(token|secret|api-?key|password|session).*|clear-site-data|content-length|transfer-encoding|connection|proxy-connection|keep-alive|upgrade|trailer|te|date|age)$/
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/

const DEFAULT_BODY_BYTES = 1024 * 1024
const MAX_BODY_BYTES = 64 * 1024 * 1024
const DEFAULT_RETAIN_MS = 24 * 60 * 60 * 1000
const MAX_RETAIN_MS = 365 * 24 * 60 * 60 * 1000
const MAX_SCOPE_BYTES = 255
const MAX_KEY_BYTES = 255

export function planIdempotency(options: PlainOptions<never> | TransactionalOptions<never>): IdempotencyPlan {
  checkForm(options)
  if (typeof options.scope !== 'function') {
    throw new InvalidOptionError('idempotent() was given no `scope`.', {
      advice:
        'Say whose key it is, by what the server has verified: { scope: (request) => request.user.id }. One user must not get another’s answer.',
    })
  }
  const headers = (options.headers ?? []).map((name) => name.toLowerCase())
  const wrong = headers.find((name) => NEVER.test(name) || !HEADER_NAME.test(name))
  if (wrong !== undefined) {
    throw new InvalidOptionError(`The header ${JSON.stringify(wrong)} is not stored.`, {
      advice: 'Leave it out of `headers`: a secret must not be stored, nor what belongs to one connection.',
    })
  }
  return {
    required: options.required ?? true,
    headers: new Set([...ALWAYS, ...headers]),
    maxBodyBytes: checkWhole('maxBodyBytes', options.maxBodyBytes ?? DEFAULT_BODY_BYTES, MAX_BODY_BYTES),
    retainMs: checkWhole('retainMs', options.retainMs ?? DEFAULT_RETAIN_MS, MAX_RETAIN_MS),
    link: linkTo(options.documentation),
  }
}

function linkTo(documentation: unknown): string | undefined {
  if (documentation === undefined) return undefined
  if (typeof documentation === 'string' && /^https?:/.test(documentation) && URL.canParse(documentation)) {
    return `<${new URL(documentation).href}>; rel="describedby"; type="text/html"`
  }
  throw new InvalidOptionError(`documentation is ${JSON.stringify(documentation)}.`, {
    advice: 'Use the address of a page, such as https://example.com/api/idempotency.',
  })
}

function checkForm(options: PlainOptions<never> | TransactionalOptions<never>): void {
  const plain = (options as object | undefined) !== undefined && options?.form === 'plain'
  checkOptions('idempotent()', options, plain ? PLAIN_OPTIONS : TRANSACTIONAL_OPTIONS)
  if (options.form === 'plain') {
    if (options.lease !== undefined) checkOptions('`lease` of idempotent()', options.lease, REQUEST_LEASE)
    return
  }
  const { form, lock, transaction } = options
  if (form !== undefined && form !== 'transaction') {
    throw new InvalidOptionError(`Unknown form ${String(form)}.`, { advice: "Use 'transaction' or 'plain'." })
  }
  if (lock !== undefined && typeof lock !== 'function') {
    throw new InvalidOptionError('`lock` of idempotent() is no function.', {
      advice: 'Pass (request) => key`Account:${…}`: each request has a key of its own.',
    })
  }
  if (transaction !== undefined) checkOptions('`transaction` of idempotent()', transaction, REQUEST_TRANSACTION)
}

function checkWhole(name: string, value: unknown, most: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= most) return value
  throw new InvalidOptionError(`${name} is ${String(value)}.`, { advice: `Use a whole number from 1 to ${most}.` })
}

/** What a forgotten value turns into: all who forgot it would share one scope. */
const FORGOTTEN = new Set(['', 'undefined', 'null', 'NaN', '[object Object]', '[object Promise]'])

export function checkScope(scope: unknown): string {
  const fits =
    typeof scope === 'string' &&
    !FORGOTTEN.has(scope) &&
    Buffer.byteLength(scope) <= MAX_SCOPE_BYTES &&
    !scope.includes('\0') &&
    scope.isWellFormed()
  if (fits) return scope
  throw new InvalidOptionError('`scope` gave no text, an empty or forgotten one, or one that is too long.', {
    advice: `Return 1 to ${MAX_SCOPE_BYTES} bytes that name the verified user or tenant; refuse requests without one before this.`,
  })
}

const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$/
const BARE = /^[\x21\x23-\x7e]+$/

/** The key in the header: a quoted string, as the draft wants it, or the bare text that many send. Undefined if malformed. */
export function parseIdempotencyKey(header: string): string | undefined {
  const text = header.trim()
  const quoted = QUOTED.exec(text)?.[1]
  const key = quoted === undefined ? BARE.exec(text)?.[0] : quoted.replaceAll(/\\(["\\])/g, '$1')
  return key === undefined || key.trim() === '' || Buffer.byteLength(key) > MAX_KEY_BYTES ? undefined : key
}
