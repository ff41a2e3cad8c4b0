/** How a failed statement is to be understood: by SQLSTATE or errno, never by the text of the message. */
import { constants } from 'node:os'

export const SERIALIZATION_FAILURE = '40001'
export const DEADLOCK_DETECTED = '40P01'
export const UNIQUE_VIOLATION = '23505'
export const LOCK_NOT_AVAILABLE = '55P03'
export const QUERY_CANCELED = '57014'
export const UNDEFINED_TABLE = '42P01'
export const UNDEFINED_OBJECT = '42704'
export const UNDEFINED_FUNCTION = '42883'
export const INSUFFICIENT_PRIVILEGE = '42501'
export const INVALID_GRANT_OPERATION = '0LP01'
export const INVALID_SCHEMA_NAME = '3F000'
export const READ_ONLY_TRANSACTION = '25006'
export const FEATURE_NOT_SUPPORTED = '0A000'
export const IN_FAILED_TRANSACTION = '25P02'
export const NO_ACTIVE_TRANSACTION = '25P01'

/** Socket errors of Node, and the codes that postgres.js gives its own. */
const LOST_CONNECTION_CODES = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENETRESET',
  'EAI_AGAIN',
  'CONNECTION_CLOSED',
  'CONNECTION_DESTROYED',
  'CONNECT_TIMEOUT',
])

/** The server ended the session: shutdown, crash of a sibling, not yet up. */
const SERVER_GONE_STATES = new Set(['57P01', '57P02', '57P03'])

/** The server ended the session because the transaction took too long: another try would take as long. */
const TOOK_TOO_LONG_STATES = new Set(['25P03', '25P04', '57P05'])

/** The `code` of an error: a SQLSTATE, an errno, or undefined. Prisma's adapters keep that of the driver as `originalCode`. */
export function codeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const { code, originalCode } = error as { code?: unknown; originalCode?: unknown }
  if (typeof code === 'string') return code
  return typeof originalCode === 'string' ? originalCode : undefined
}

/** Prisma's codes, as P2034. PostgreSQL's own that begin with P are PL/pgSQL's, as P0001. */
const PRISMA_CODE = /^P[1-9]/

/** True for an error that the server itself reported. Some errnos have five letters, too, as EPIPE. */
export function isSqlState(error: unknown): boolean {
  const code = codeOf(error) ?? ''
  return /^[0-9A-Z]{5}$/.test(code) && !(code in constants.errno) && !PRISMA_CODE.test(code)
}

/** What Prisma's adapters make of errnos, which they do not keep. */
const LOST_CONNECTION_KINDS: ReadonlySet<unknown> = new Set([
  'ConnectionClosed',
  'SocketTimeout',
  'DatabaseNotReachable',
])

/** True for a SQLSTATE or errno that says: the connection is gone. */
export function meansConnectionLost(error: unknown): boolean {
  const code = codeOf(error)
  if (code === undefined) return LOST_CONNECTION_KINDS.has((error as { kind?: unknown } | null | undefined)?.kind)
  return LOST_CONNECTION_CODES.has(code) || SERVER_GONE_STATES.has(code) || /^08[0-9A-Z]{3}$/.test(code)
}

/** True when the session was ended by the server's own clock. */
export function meansSessionTimedOut(error: unknown): boolean {
  return TOOK_TOO_LONG_STATES.has(codeOf(error) ?? '')
}

/** True for an answer after which the server says nothing more on this connection. */
export function endsSession(error: unknown): boolean {
  return meansConnectionLost(error) || meansSessionTimedOut(error)
}

/** True for the two failures that another attempt can resolve by itself. */
export function meansTryAgain(error: unknown): boolean {
  const code = codeOf(error)
  return code === SERIALIZATION_FAILURE || code === DEADLOCK_DETECTED
}

/** How many errors are looked at: a caller may have wrapped the driver's several times, and an ORM keeps it under several names. */
const MAX_CAUSES = 32

/**
 * Under which names an error has the one that it wraps: `cause` is the language's and Drizzle's, `driverError` TypeORM's, `original` and
 * `parent` Sequelize's, `previous` MikroORM's. Prisma has it as `meta.driverAdapterError`.
 */
const WRAPPED = ['cause', 'driverError', 'original', 'parent', 'previous'] as const

function wrappedBy(error: unknown): unknown[] {
  if (!(error instanceof Error)) return []
  const named: Partial<Record<(typeof WRAPPED)[number], unknown>> & { meta?: unknown } = error
  const { driverAdapterError } = (named.meta ?? {}) as { driverAdapterError?: unknown }
  return [...WRAPPED.map((name) => named[name]), driverAdapterError].filter((each) => each !== undefined)
}

/** Looks at an error and those that it wraps, the nearest first, until one fits. ORMs are no exception: what they wrap is found. */
export function findCause(error: unknown, fits: (candidate: unknown) => boolean): unknown {
  const seen = new Set<unknown>([error])
  for (const candidate of seen) {
    if (fits(candidate)) return candidate
    for (const wrapped of wrappedBy(candidate)) if (seen.size < MAX_CAUSES) seen.add(wrapped)
  }
  return undefined
}
