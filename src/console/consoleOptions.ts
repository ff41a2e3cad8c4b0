import { createHash } from 'node:crypto'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  type Consumers,
  type Guards,
  InvalidOptionError,
  type Leases,
  type Locks,
  type Outbox,
  type Sink,
  type SinkFunction,
  type StatementResult,
} from '../index.ts'
import { checkPrometheus, type PrometheusSource } from './prometheusHistory.ts'

/** What `createConsole()` takes. */
export interface ConsoleOptions {
  /** The path under which it is mounted, such as `/console`. Default `/`. */
  readonly base?: string
  /**
   * Whether users can change things: take leases away, retry, skip, pause and resume streams, see payloads. Needs a `token`. Default false.
   */
  readonly operator?: boolean
  /**
   * The token to log in with, at least 16 characters. Without one, the console is read-only and answers only requests from this machine:
   * under a loopback name or address (`localhost`, `127.0.0.1`, `[::1]`), without any sign of a proxy. It cannot detect a proxy on this
   * machine that leaves no sign, or a tunnel: with either, set a token.
   */
  readonly token?: string
  /**
   * One token for each user, instead of `token` and `operator`. The audit then has the user of the token, not a name typed at login. The
   * command line reads them from a file.
   */
  readonly people?: readonly Person[]
  /**
   * Your own authentication, instead of tokens. Returns undefined to refuse the request. It is called for each request, and once a minute
   * while a page is open.
   */
  readonly authenticate?: (request: Request) => Promise<KnownPerson | undefined> | KnownPerson | undefined
  /** Sinks to which operators can replay a stream, by name. Default: none. */
  readonly replayTo?: Readonly<Record<string, Sink | SinkFunction>>
  /**
   * The user and the address of a request, if a proxy or another server knows them better than the console. They are used for the audit,
   * and to limit wrong tokens by address. Read only headers that your proxy sets itself and never passes on from outside.
   */
  readonly identify?: (request: Request) => Identity | undefined
  /**
   * Whether it also samples the overview every ten seconds while no page is open, so that charts cover the last hour when a page is opened.
   * Otherwise charts cover only the time in which a page was open. Default false; the command line sets it.
   */
  readonly history?: boolean
  /** Where the charts get the last hour from that no page has seen: the HTTP API of a Prometheus. Default: from this process alone. */
  readonly prometheus?: PrometheusSource
  /** How often locks and the overview are looked at; leases and the outbox half as often. Default 1,000. */
  readonly everyMs?: number
  /** The share of one connection’s time that all queries together can take. Slow queries run less often. 1 is no limit. Default 0.01. */
  readonly share?: number
}

/** What a person can do: a viewer only looks. */
export type ConsoleRole = 'viewer' | 'operator'

/** A user who can log in. */
export interface Person {
  /** For the audit, up to 100 characters. */
  readonly name: string
  readonly role: ConsoleRole
  /** 16 characters at least. One of `token` and `sha256`. */
  readonly token?: string
  /** SHA-256 of the token, in hexadecimal digits: then the token itself is nowhere but with the person. */
  readonly sha256?: string
}

/** A user whom the service has authenticated. */
export interface KnownPerson {
  /** For the audit, up to 100 characters. */
  readonly name: string
  readonly role: ConsoleRole
  /** The address of the client. Default: what `identify` or the connection says. */
  readonly address?: string
}

/** Who sends a request, if known. */
export interface Identity {
  /** The name for the audit, up to 100 characters. */
  readonly name?: string | null | undefined
  /** The address of the client. */
  readonly address?: string | null | undefined
}

const PERSON: OptionNames<Person> = { name: true, role: true, token: true, sha256: true }

const CONSOLE_OPTIONS: OptionNames<ConsoleOptions> = {
  base: true,
  operator: true,
  token: true,
  people: true,
  authenticate: true,
  replayTo: true,
  identify: true,
  history: true,
  prometheus: true,
  everyMs: true,
  share: true,
}

/** What the console needs of a Lockstep. */
export interface ConsoleLockstep {
  readonly schema: string
  readonly locks: Locks
  readonly guards: Pick<Guards, 'list' | 'samples'>
  readonly leases: Pick<Leases, 'list' | 'history' | 'forceRelease'>
  readonly consumers: Pick<Consumers, 'list'>
  readonly outbox: Pick<
    Outbox,
    | 'status'
    | 'parked'
    | 'retry'
    | 'skip'
    | 'pause'
    | 'resume'
    | 'events'
    | 'deadLetters'
    | 'redrive'
    | 'replay'
    | 'removeDispatcher'
  >
  detached<T>(fn: () => T): T
  transaction<T>(
    options: { readonly retry: false; readonly waitMs: number },
    fn: (tx: ConsoleTransaction) => Promise<T>,
  ): Promise<T>
}

/** A transaction, as far as the console uses one. */
export interface ConsoleTransaction {
  query<Row>(text: string, values?: readonly unknown[]): Promise<StatementResult<Row>>
}

export interface ConsolePlan {
  /** Begins and ends with a slash. */
  readonly base: string
  readonly operator: boolean
  readonly token: string | undefined
  readonly people: readonly Person[] | undefined
  readonly authenticate: ConsoleOptions['authenticate']
  readonly replayTo: Readonly<Record<string, Sink | SinkFunction>>
  readonly identify: ((request: Request) => Identity | undefined) | undefined
  readonly history: boolean
  readonly prometheus: PrometheusSource | undefined
  readonly everyMs: number
  readonly share: number
}

const MOST_BASE = 1000
const LEAST_TOKEN = 16
const MOST_TOKEN = 1000
const DEFAULT_EVERY_MS = 1000
const LEAST_EVERY_MS = 50
const MOST_EVERY_MS = 60_000
const DEFAULT_SHARE = 0.01

export function planConsole(options: ConsoleOptions = {}): ConsolePlan {
  checkOptions('createConsole()', options, CONSOLE_OPTIONS)
  const { people, authenticate, replayTo = {}, history = false } = options
  if (typeof history !== 'boolean') {
    throw new InvalidOptionError(`history is ${String(history)}.`, { advice: 'Use true or false.' })
  }
  const { base = '/', operator = false, token, identify, everyMs = DEFAULT_EVERY_MS, share = DEFAULT_SHARE } = options
  if (typeof operator !== 'boolean') {
    throw new InvalidOptionError(`operator is ${String(operator)}.`, { advice: 'Use true or false.' })
  }
  const ways = Object.entries({ token, people, authenticate }).flatMap(([name, value]) =>
    value === undefined ? [] : [name],
  )
  if (ways.length > 1) {
    throw new InvalidOptionError(`createConsole() was given ${ways.join(' and ')}.`, {
      advice: 'Use one of them: a token for all, a token for each person, or the authentication of your service.',
    })
  }
  if (operator && (people !== undefined || authenticate !== undefined)) {
    throw new InvalidOptionError(`operator is true beside ${ways.join()}.`, {
      advice: 'Leave it out: each person has a role.',
    })
  }
  for (const [name, value] of Object.entries({ authenticate })) {
    if (value === undefined || typeof value === 'function') continue
    throw new InvalidOptionError(`${name} is not a function.`, {
      advice: "Return for example { name: 'ada', role: 'viewer' }, or undefined.",
    })
  }
  if (people === undefined && authenticate === undefined && operator && token === undefined) {
    throw new InvalidOptionError('operator is true, and there is no token.', {
      advice:
        'Add `token`, such as what `openssl rand -hex 16` prints: without one, a proxy on this machine could open it to others.',
    })
  }
  if (identify !== undefined && typeof identify !== 'function') {
    throw new InvalidOptionError('identify is not a function.', {
      advice: "Pass for example ({ headers }) => ({ address: headers.get('x-real-ip') }).",
    })
  }
  if (typeof everyMs !== 'number' || !(everyMs >= LEAST_EVERY_MS && everyMs <= MOST_EVERY_MS)) {
    throw new InvalidOptionError(`everyMs is ${String(everyMs)}.`, {
      advice: `Use ${LEAST_EVERY_MS} to ${MOST_EVERY_MS} milliseconds.`,
    })
  }
  if (typeof share !== 'number' || !(share > 0 && share <= 1)) {
    throw new InvalidOptionError(`share is ${String(share)}.`, { advice: 'Use a number above 0, up to 1.' })
  }
  return {
    base: checkBase(base),
    operator,
    token: checkToken(token),
    people: checkPeople(people),
    authenticate,
    replayTo,
    identify,
    history,
    prometheus: checkPrometheus(options.prometheus),
    everyMs,
    share,
  }
}

const MAX_PEOPLE = 1000
/** A name as it can stand in an audit: without line breaks or other control characters. */
const NAME = /^[^\p{Cc}\p{Cf}]{1,100}$/u

/** Tokens are not repeated in errors. */
function checkPeople(people: ConsoleOptions['people']): ConsoleOptions['people'] {
  if (people === undefined) return undefined
  if (!Array.isArray(people) || people.length === 0 || people.length > MAX_PEOPLE) {
    throw new InvalidOptionError('people is no list of persons.', {
      advice: `List 1 to ${MAX_PEOPLE}: { name, role, token }.`,
    })
  }
  const seen = new Set<string>()
  for (const person of people as readonly Person[]) {
    checkOptions('people', person, PERSON)
    const { name, role, token, sha256 } = person
    if (typeof name !== 'string' || !NAME.test(name) || name.trim() !== name) {
      throw new InvalidOptionError(`A person has the name ${(JSON.stringify(name) ?? 'undefined').slice(0, 100)}.`, {
        advice: 'Use 1 to 100 characters, without line breaks.',
      })
    }
    if (role !== 'viewer' && role !== 'operator') {
      throw new InvalidOptionError(`${name} has the role ${String(role)}.`, { advice: 'Use viewer or operator.' })
    }
    if ((token === undefined) === (sha256 === undefined)) {
      throw new InvalidOptionError(`${name} has no token, or two.`, { advice: 'Give either `token` or `sha256`.' })
    }
    checkToken(token)
    if (sha256 !== undefined && !/^[0-9a-f]{64}$/i.test(sha256)) {
      throw new InvalidOptionError(`The sha256 of ${name} is not one.`, {
        advice: 'Use the 64 digits that `printf %s TOKEN | sha256sum` prints.',
      })
    }
    for (const each of [`name ${name}`, digestOf(person).toString('hex')]) {
      if (seen.has(each)) {
        throw new InvalidOptionError(`${name} is there twice, or has the token of another person.`, {
          advice: 'Give each person a name and a token of their own.',
        })
      }
      seen.add(each)
    }
  }
  return people
}

/** SHA-256 of a person's token. */
export function digestOf({ token, sha256 }: Person): Buffer {
  return token === undefined ? Buffer.from(sha256 ?? '', 'hex') : createHash('sha256').update(token).digest()
}

function checkBase(base: unknown): string {
  // It goes into a cookie's Path and into a redirect. Segment by segment: each character is looked at once.
  if (typeof base === 'string' && base.startsWith('/') && base.length <= MOST_BASE) {
    const path = base.endsWith('/') ? base : `${base}/`
    if (path.slice(1).split('/').slice(0, -1).every(isSegment)) return path
  }
  throw new InvalidOptionError(`base is ${(JSON.stringify(base) ?? String(base)).slice(0, 100)}.`, {
    advice: `Use a path of letters, digits, -, _, ~ and dots, such as /console, of ${MOST_BASE} characters at most.`,
  })
}

function isSegment(text: string): boolean {
  return /^[\w.~-]+$/.test(text) && text !== '.' && text !== '..'
}

function checkToken(token: unknown): string | undefined {
  if (token === undefined) return undefined
  if (typeof token === 'string' && token.length >= LEAST_TOKEN && token.length <= MOST_TOKEN) return token
  // Not repeated: it may be a good token for something else.
  throw new InvalidOptionError('token is no text, or too short or too long.', {
    advice: `Use ${LEAST_TOKEN} to ${MOST_TOKEN} random characters, such as those of \`openssl rand -hex 16\`.`,
  })
}
