import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../index.ts'
import type { Sent } from './conversation.ts'
import type { Proxy, ProxyConnection, Verdict } from './proxy.ts'
import { CONFLICT } from './testing.sql.ts'

/**
 * A step of a transaction, as seen on the network.
 * - `begin`: the message that begins the transaction is on its way, and never arrives.
 * - `locked`: the server has begun the transaction and granted its locks, if they were free; the answer is lost.
 * - `commit`: COMMIT is on its way, and never arrives: nothing is committed.
 * - `committed`: the server has committed; the answer is lost.
 * - `{ before: text }`: a statement that contains the text is on its way, and never arrives.
 * - `{ after: text }`: the server has run it; the answer is lost.
 */
export type Step =
  | 'begin'
  | 'locked'
  | 'commit'
  | 'committed'
  | { readonly before: string }
  | { readonly after: string }

/** A fault that is armed: it strikes once. */
export interface Strike {
  /** Resolves when it has struck. */
  readonly struck: Promise<void>
  readonly done: boolean
  /** Takes it away, if it has not struck yet. */
  readonly disarm: () => void
}

/** Which transaction a fault is meant for. */
export interface FaultOptions {
  /** Only a transaction that has sent a statement with this text. Default: the first that gets there. */
  readonly statement?: string
}

const FAULT_OPTIONS: OptionNames<FaultOptions> = { statement: true }

/** What `killAt()` takes. */
export interface KillOptions extends FaultOptions {
  /** A process to kill with SIGKILL, such as a `ChildProcess`. Default: none, the connection alone dies. */
  readonly process?: { kill(signal: 'SIGKILL'): unknown }
}

const KILL_OPTIONS: OptionNames<KillOptions> = { ...FAULT_OPTIONS, process: true }

/** What happens to the message at a step. */
type Act = (connection: ProxyConnection) => Verdict

/**
 * Arms a fault at the step of the next transaction that goes through the proxy. The verdict says what happens to the message.
 *
 * @example
 * const { struck } = strikeAt(proxy, 'commit', 'cut-before')
 */
export function strikeAt(proxy: Proxy, step: Step, verdict: Verdict | Act, options: FaultOptions = {}): Strike {
  checkOptions('strikeAt()', options, FAULT_OPTIONS)
  const { when, matches } = stepOf(step)
  let done = false
  let resolveStruck = (): void => undefined
  const struck = new Promise<void>((resolve) => (resolveStruck = resolve))
  const { statement } = options
  const disarm = proxy.onStep((now, statements, connection) => {
    if (now !== when || !statements.some((each) => matches(each))) return undefined
    if (statement !== undefined && !connection.transaction.some((text) => text.includes(statement))) return undefined
    disarm()
    done = true
    resolveStruck()
    return typeof verdict === 'function' ? verdict(connection) : verdict
  })
  return {
    struck,
    get done() {
      return done
    },
    disarm,
  }
}

/** Cuts the connection at the step, and kills the process first if there is one. */
export function killAt(proxy: Proxy, step: Step, options: KillOptions = {}): Strike {
  checkOptions('killAt()', options, KILL_OPTIONS)
  const { process, ...which } = options
  const kill: Act = () => {
    process?.kill('SIGKILL')
    return 'cut-before'
  }
  return strikeAt(proxy, step, kill, which)
}

/** The server rolls the transaction back in place of its COMMIT, and reports 40001. */
export function conflictAtCommit(proxy: Proxy, options: FaultOptions = {}): Strike {
  const fail: Act = (connection) => {
    // Asked for after the verdict: the message is held by then.
    queueMicrotask(() => connection.failHeld(CONFLICT))
    return 'hold'
  }
  return strikeAt(proxy, 'commit', fail, options)
}

function stepOf(step: Step): { when: 'sent' | 'answered'; matches: (sent: Sent) => boolean } {
  const opens = ({ opens: yes }: Sent): boolean => yes
  const commits = ({ commits: yes }: Sent): boolean => yes
  if (step === 'begin') return { when: 'sent', matches: opens }
  if (step === 'locked') return { when: 'answered', matches: opens }
  if (step === 'commit') return { when: 'sent', matches: commits }
  if (step === 'committed') return { when: 'answered', matches: commits }
  const { before, after } = (typeof step === 'object' ? step : {}) as { before?: string; after?: string }
  const text = before ?? after
  if (typeof text !== 'string' || text === '') {
    throw new InvalidOptionError(`There is no step ${JSON.stringify(step)}.`, {
      advice: 'Use begin, locked, commit, committed, { before: text } or { after: text }.',
    })
  }
  return { when: before === undefined ? 'answered' : 'sent', matches: (sent) => sent.text.includes(text) }
}
