import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOption } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import type { LeaseOptions } from '../leases/index.ts'
import type { TransactionOptions } from '../transactions/index.ts'

/** What both forms of `idempotent()` take. */
export interface IdempotentOptions<Request> {
  /** Whose key it is: the tenant, the user, the API key's owner. Nobody gets an answer of another scope. 1 to 255 bytes. */
  readonly scope: (request: Request) => string | Promise<string>
  /** Whether a request without the header is refused with 400. Where it is not, such a request just runs. Default true. */
  readonly required?: boolean
  /** Which headers of the answer are stored beside its body. Default `content-type` and `location`. Never cookies or credentials. */
  readonly headers?: readonly string[]
  /** The largest body of a request and of an answer. Default 1 MiB. */
  readonly maxBodyBytes?: number
  /** How long an answer is given again. Default 24 hours. */
  readonly ttlMs?: number
  /** The bytes that tell requests apart, where the framework's own body is not it. Default: the raw or the parsed body. */
  readonly body?: (request: Request) => Uint8Array | string | Promise<Uint8Array | string>
}

/** The transactional form: what the handler does with its `tx` and the stored answer are committed together. */
export interface TransactionalOptions<Request> extends IdempotentOptions<Request> {
  readonly form?: 'transaction'
  /** Locks that the handler needs; granted before its first read. */
  readonly lock?: (request: Request) => Key | readonly Key[] | Promise<Key | readonly Key[]>
  /** As of `lockstep.transaction()`. `waitMs` is for `lock`. */
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
  ttlMs: true,
  body: true,
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
  readonly ttlMs: number
}

const DEFAULT_HEADERS = ['content-type', 'location']
/** Without it the stored bytes could not be read. */
const ALWAYS = 'content-encoding'
/** What opens doors is not stored; what belongs to one connection is not repeated. */
const NEVER =
  /^(set-cookie2?|cookie|(proxy-)?authorization|(proxy-|www-)?authenticate|(proxy-)?authentication-info|.*(token|secret|api-?key|password|session).*|content-length|transfer-encoding|connection|keep-alive|upgrade|trailer|te|date)$/
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/

const DEFAULT_BODY_BYTES = 1024 * 1024
const MAX_BODY_BYTES = 64 * 1024 * 1024
const DEFAULT_TTL_MS = 24 * 60 * 60 * 1000
const MAX_TTL_MS = 365 * 24 * 60 * 60 * 1000
const MAX_SCOPE_BYTES = 255
const MAX_KEY_BYTES = 255

export function planIdempotency(options: PlainOptions<never> | TransactionalOptions<never>): IdempotencyPlan {
  checkForm(options)
  if (typeof options.scope !== 'function') {
    throw new InvalidOption('idempotent() was given no `scope`.', {
      advice:
        'Say whose key it is: { scope: (request) => tenantOf(request) }. One tenant must not get another’s answer.',
    })
  }
  const headers = (options.headers ?? DEFAULT_HEADERS).map((name) => name.toLowerCase())
  const wrong = headers.find((name) => NEVER.test(name) || !HEADER_NAME.test(name))
  if (wrong !== undefined) {
    throw new InvalidOption(`The header ${JSON.stringify(wrong)} is not stored.`, {
      advice: 'Leave it out of `headers`: a secret must not be stored, nor what belongs to one connection.',
    })
  }
  return {
    required: options.required ?? true,
    headers: new Set([...headers, ALWAYS]),
    maxBodyBytes: checkWhole('maxBodyBytes', options.maxBodyBytes ?? DEFAULT_BODY_BYTES, MAX_BODY_BYTES),
    ttlMs: checkWhole('ttlMs', options.ttlMs ?? DEFAULT_TTL_MS, MAX_TTL_MS),
  }
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
    throw new InvalidOption(`There is no form ${String(form)}.`, { advice: "Use 'transaction' or 'plain'." })
  }
  if (lock !== undefined && typeof lock !== 'function') {
    throw new InvalidOption('`lock` of idempotent() is no function.', {
      advice: 'Pass (request) => key`Account:${…}`: each request has a key of its own.',
    })
  }
  if (transaction !== undefined) checkOptions('`transaction` of idempotent()', transaction, REQUEST_TRANSACTION)
}

function checkWhole(name: string, value: unknown, most: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= most) return value
  throw new InvalidOption(`${name} is ${String(value)}.`, { advice: `Use a whole number from 1 to ${most}.` })
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
  throw new InvalidOption('`scope` gave no text, an empty or forgotten one, or one that is too long.', {
    advice: `Return 1 to ${MAX_SCOPE_BYTES} bytes that name the tenant; refuse requests without one before this.`,
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
