import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOption, type Leases, type Locks, type Outbox, type StatementResult } from '../index.ts'

/** What `createConsole()` takes. */
export interface ConsoleOptions {
  /** The path under which it is mounted, such as `/console`. Default `/`. */
  readonly base?: string
  /** Whether it may change anything: take leases away, retry, skip, pause and resume streams, show payloads. Default false. */
  readonly operator?: boolean
  /**
   * What has to be known to look at it, 16 characters at least. Without one, requests are answered only under a loopback name or
   * address (`localhost`, `127.0.0.1`, `[::1]`).
   */
  readonly token?: string
  /** How often locks and the overview are looked at; leases and the outbox half as often. Default 1,000. */
  readonly everyMs?: number
  /**
   * How much of one connection's time all questions together may take: what takes long is asked less often. 1 is no limit. Default 0.01.
   */
  readonly share?: number
}

const CONSOLE_OPTIONS: OptionNames<ConsoleOptions> = {
  base: true,
  operator: true,
  token: true,
  everyMs: true,
  share: true,
}

/** What the console needs of a Lockstep. */
export interface ConsoleLockstep {
  readonly schema: string
  readonly locks: Locks
  readonly leases: Pick<Leases, 'list' | 'history' | 'forceRelease'>
  readonly outbox: Pick<Outbox, 'status' | 'parked' | 'retry' | 'skip' | 'pause' | 'resume'>
  detached<T>(fn: () => T): T
  transaction<T>(options: { readonly retry: false; readonly waitMs: number }, fn: (tx: Asks) => Promise<T>): Promise<T>
}

/** A transaction, as far as the console uses one. */
export interface Asks {
  query<Row>(text: string, values?: readonly unknown[]): Promise<StatementResult<Row>>
}

export interface ConsolePlan {
  /** Begins and ends with a slash. */
  readonly base: string
  readonly operator: boolean
  readonly token: string | undefined
  readonly everyMs: number
  readonly share: number
}

const LEAST_TOKEN = 16
const MOST_TOKEN = 1000
const DEFAULT_EVERY_MS = 1000
const LEAST_EVERY_MS = 50
const MOST_EVERY_MS = 60_000
const DEFAULT_SHARE = 0.01

export function planConsole(options: ConsoleOptions = {}): ConsolePlan {
  checkOptions('createConsole()', options, CONSOLE_OPTIONS)
  const { base = '/', operator = false, token, everyMs = DEFAULT_EVERY_MS, share = DEFAULT_SHARE } = options
  if (typeof operator !== 'boolean') {
    throw new InvalidOption(`operator is ${String(operator)}.`, { advice: 'Use true or false.' })
  }
  if (typeof everyMs !== 'number' || !(everyMs >= LEAST_EVERY_MS && everyMs <= MOST_EVERY_MS)) {
    throw new InvalidOption(`everyMs is ${String(everyMs)}.`, {
      advice: `Use ${LEAST_EVERY_MS} to ${MOST_EVERY_MS} milliseconds.`,
    })
  }
  if (typeof share !== 'number' || !(share > 0 && share <= 1)) {
    throw new InvalidOption(`share is ${String(share)}.`, { advice: 'Use a number above 0, up to 1.' })
  }
  return { base: checkBase(base), operator, token: checkToken(token), everyMs, share }
}

function checkBase(base: unknown): string {
  // It goes into a cookie's Path and into a redirect.
  if (typeof base === 'string' && /^\/(?:[\w.~-]+\/?)*$/.test(base) && !/\/\.{1,2}(?:\/|$)/.test(base)) {
    return base.endsWith('/') ? base : `${base}/`
  }
  throw new InvalidOption(`base is ${JSON.stringify(base) ?? String(base)}.`, {
    advice: 'Use a path of letters, digits, -, _, ~ and dots, such as /console.',
  })
}

function checkToken(token: unknown): string | undefined {
  if (token === undefined) return undefined
  if (typeof token === 'string' && token.length >= LEAST_TOKEN && token.length <= MOST_TOKEN) return token
  // Not repeated: it may be a good token for something else.
  throw new InvalidOption('token is no text, or too short or too long.', {
    advice: `Use ${LEAST_TOKEN} to ${MOST_TOKEN} characters that nobody can guess, such as those of \`openssl rand -hex 16\`.`,
  })
}
