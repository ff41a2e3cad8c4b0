import {
  ConnectionLostError,
  ConnectionRejectedError,
  LockstepError,
  LockTimeoutError,
  type RejectionReason,
} from '../errors.ts'
import { codeOf, isSqlState } from './sqlstate.ts'

/**
 * Why a pool gave no connection. Each driver passes every rejection of its `connect()` through here, so that all of Lockstep meets the
 * same three errors. Nothing was sent on a connection that was never open, so another try is always safe; it is pointless only where a
 * person has to change something first:
 * - `ConnectionRejectedError`, final: the password, the role, the database, a setting of the connection, the certificate.
 * - `LockTimeoutError` with `waitedFor: 'connection'`, final: the pool is exhausted, and the driver's own timeout ended the wait.
 * - `ConnectionLostError`, retried: everything else. The server is away, restarts, has no connection left, or something between is down.
 *
 * Recognized by SQLSTATE, errno and the pool's counters, never by the text.
 */
export function connectFailure(error: unknown): LockstepError {
  if (error instanceof LockstepError) return error
  const reason = rejectionOf(codeOf(error), error)
  return reason === undefined ? unreachable(error) : rejected(reason, error)
}

/** PostgreSQL answers the start of a connection with codes of these classes where another try gets the same answer. */
const REJECTING_CLASSES: ReadonlyMap<string, RejectionReason> = new Map([
  // Password, role, pg_hba.conf.
  ['28', 'authentication'],
  // The database does not exist.
  ['3D', 'database'],
  // A parameter of the connection that the server does not know, or with a value that it refuses.
  ['0A', 'settings'],
  ['22', 'settings'],
  ['42', 'settings'],
])

const REJECTING_CODES: ReadonlyMap<string, RejectionReason> = new Map([
  // No CONNECT privilege.
  ['42501', 'database'],
  // It takes no connections: `datallowconn` is false, or its DROP DATABASE was interrupted.
  ['55000', 'database'],
  // DROP DATABASE.
  ['57P04', 'database'],
  // postgres.js: the server does not know the password either, so it is not our server.
  ['SASL_SIGNATURE_MISMATCH', 'authentication'],
])

function rejectionOf(code: string | undefined, error: unknown): RejectionReason | undefined {
  if (code === undefined) return undefined
  const reason = REJECTING_CODES.get(code)
  if (reason !== undefined) return reason
  if (isSqlState(error)) return REJECTING_CLASSES.get(code.slice(0, 2))
  return isTlsRefusal(code) ? 'tls' : undefined
}

/** OpenSSL's names for a certificate that was not accepted, as Node passes them on. */
const CERTIFICATE_CODES = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY',
  'UNABLE_TO_DECRYPT_CERT_SIGNATURE',
  'UNABLE_TO_GET_CRL',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'HOSTNAME_MISMATCH',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'PATH_LENGTH_EXCEEDED',
])

/** A certificate, or a peer that speaks no TLS or another version. A socket that closes in the handshake has an errno instead. */
function isTlsRefusal(code: string): boolean {
  return CERTIFICATE_CODES.has(code) || /^(CERT_|ERR_TLS_|ERR_SSL_|EPROTO$)/.test(code)
}

const ADVICE: Readonly<Record<RejectionReason, string>> = {
  authentication: 'Check user and password of the pool, and pg_hba.conf of the server.',
  database: 'Check the name of the database, and whether the role may CONNECT to it.',
  tls: 'Check `ssl` of the pool, and the certificate of the server.',
  settings: 'Check the options of the pool: the server, or a hook of the pool, refuses one of them.',
}

/** The error for a connection that cannot be opened until a person changes something. */
export function rejected(reason: RejectionReason, cause: unknown): ConnectionRejectedError {
  return new ConnectionRejectedError(`The connection was refused: ${wordsOf(cause)}.`, {
    advice: ADVICE[reason],
    reason,
    cause,
  })
}

/** The error for a server that is not there now. */
export function unreachable(cause: unknown): ConnectionLostError {
  return new ConnectionLostError(`No connection could be opened: ${wordsOf(cause)}.`, {
    advice: 'Nothing was sent, and you can try again. Check the server, and the network in between.',
    cause,
  })
}

/** The error for a pool whose connections are all in use. */
export function poolExhausted(waitedMs: number, cause?: unknown): LockTimeoutError {
  const waited = Math.round(waitedMs)
  return new LockTimeoutError(`All connections of the pool were in use for ${waited} ms.`, {
    advice: 'Nothing was sent. Make the pool larger, or the transactions shorter.',
    waitedMs: waited,
    waitedFor: 'connection',
    holders: [],
    cause,
  })
}

/** The same failure, for a call that names keys. */
export function withKeys(error: unknown, keys: readonly string[]): unknown {
  if (keys.length === 0 || !(error instanceof ConnectionLostError || error instanceof ConnectionRejectedError))
    return error
  const { advice, cause } = error
  const message = error.message.slice(0, -advice.length - 1)
  return error instanceof ConnectionLostError
    ? new ConnectionLostError(message, { advice, keys, cause })
    : new ConnectionRejectedError(message, { advice, keys, cause, reason: error.reason })
}

/** True for an error that says: no connection was available, so nothing is known and nothing was done. */
export function meansNoConnection(error: unknown): boolean {
  return error instanceof ConnectionLostError || (error instanceof LockTimeoutError && error.waitedFor === 'connection')
}

function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // A name with several addresses fails without a text of its own.
  const text =
    error.message === '' && error instanceof AggregateError ? error.errors.map(wordsOf).join('; ') : error.message
  return withoutEnd(text === '' ? (codeOf(error) ?? error.name) : text)
}

/** Without full stops and white space at its end. A regular expression would start again at each of them, and take quadratic time. */
function withoutEnd(text: string): string {
  let end = text.length
  while (end > 0 && /[.\s]/.test(text[end - 1] as string)) end--
  return text.slice(0, end)
}
