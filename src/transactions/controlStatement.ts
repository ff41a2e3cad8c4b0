import { firstWord, type LeadingTokens, scanStatements } from './statementScanner.ts'
import type { Isolation } from './isolation.ts'

/** What BEGIN and SET TRANSACTION ask for. */
export interface TransactionModes {
  readonly isolation?: Isolation | undefined
  readonly readOnly?: boolean | undefined
  readonly deferrable?: boolean | undefined
  /** A word that is none of them. */
  readonly unknown?: string | undefined
}

/** A statement that has to do with where a transaction begins and ends. */
export type Control =
  | ({ readonly kind: 'begin' } & TransactionModes)
  | { readonly kind: 'commit' | 'rollback'; readonly chain: boolean }
  /** PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED. */
  | { readonly kind: 'twoPhase' }
  /** A savepoint of the caller's own, by its name. */
  | { readonly kind: 'savepoint'; readonly name: string }
  | ({ readonly kind: 'setTransaction' } & TransactionModes)
  | { readonly kind: 'setSession' }

/** What stands in a text: how many statements, and those of them that have to do with transactions. */
export interface Reading {
  readonly statements: number
  readonly controls: readonly Control[]
}

const PLAIN: Reading = { statements: 1, controls: [] }

const USUAL = /^\s*(?:select|insert|update|delete|with)\b/i

const FIRST_WORDS: ReadonlySet<string> = new Set([
  'begin',
  'start',
  'commit',
  'end',
  'rollback',
  'abort',
  'prepare',
  'savepoint',
  'release',
  'set',
])

/** Reads a text. Most have one statement, of which the first word says that it is none of these. */
export function readControls(text: string): Reading {
  if (!FIRST_WORDS.has(firstWord(text)) && !hasSeveral(text)) return PLAIN
  const statements = scanStatements(text)
  return { statements: statements.length, controls: statements.map(controlOf).filter((each) => each !== undefined) }
}

/** Whether it may have more than one statement: only a semicolon that something follows can bring that about. */
function hasSeveral(text: string): boolean {
  const semicolon = text.indexOf(';')
  return semicolon !== -1 && /[^ \t\n\r\f\v;]/.test(text.slice(semicolon))
}

const ENDS_OR_BEGINS: ReadonlySet<Control['kind']> = new Set(['begin', 'commit', 'rollback', 'twoPhase'])

/** Whether it begins or ends a transaction. What comes before it and after it in a text would be of different ones. */
export function endsOrBegins({ kind }: Control): boolean {
  return ENDS_OR_BEGINS.has(kind)
}

/**
 * Whether the first statement of a text begins or ends a transaction, or names one of our savepoints. Where only one statement can be
 * sent, it is all there is.
 */
export function touchesTransaction(text: string, isOwn: (savepoint: string) => boolean): boolean {
  // Nearly every statement: the first word is not even taken out of the text.
  if (USUAL.test(text) || !FIRST_WORDS.has(firstWord(text))) return false
  const [control] = scanStatements(text).slice(0, 1).map(controlOf)
  if (control === undefined) return false
  return control.kind === 'savepoint' ? isOwn(control.name) : endsOrBegins(control)
}

function controlOf(words: LeadingTokens): Control | undefined {
  const [first = '', second] = words
  switch (first) {
    case 'begin':
      return { kind: 'begin', ...modesOf(afterWork(words)) }
    case 'start':
      return second === 'transaction' ? { kind: 'begin', ...modesOf(words.slice(2)) } : undefined
    case 'commit':
    case 'end':
      return second === 'prepared' ? { kind: 'twoPhase' } : { kind: 'commit', chain: chains(afterWork(words)) }
    case 'rollback':
    case 'abort':
      return rollbackOf(words)
    case 'prepare':
      return second === 'transaction' ? { kind: 'twoPhase' } : undefined
    case 'savepoint':
      return { kind: 'savepoint', name: nameOf(second) }
    case 'release':
      return { kind: 'savepoint', name: nameOf(second === 'savepoint' ? words[2] : second) }
    case 'set':
      return settingOf(words)
    default:
      return undefined
  }
}

function rollbackOf(words: LeadingTokens): Control {
  if (words[1] === 'prepared') return { kind: 'twoPhase' }
  const [to, savepoint, name] = afterWork(words)
  if (to === 'to')
    return { kind: 'savepoint', name: nameOf(savepoint === 'savepoint' ? (name ?? savepoint) : savepoint) }
  return { kind: 'rollback', chain: chains(afterWork(words)) }
}

/** What follows the command and the words that mean nothing. */
function afterWork(words: LeadingTokens): LeadingTokens {
  return words.slice(words[1] === 'work' || words[1] === 'transaction' ? 2 : 1)
}

function chains([and, chain]: LeadingTokens): boolean {
  return and === 'and' && chain === 'chain'
}

function nameOf(word: string | undefined): string {
  return word?.replace(/^"/, '') ?? ''
}

/** SET [LOCAL | SESSION] TRANSACTION, SET SESSION CHARACTERISTICS AS TRANSACTION, and the settings behind them. */
function settingOf(words: LeadingTokens): Control | undefined {
  const rest = words.slice(words[1] === 'local' || words[1] === 'session' ? 2 : 1)
  const [name, equals, ...value] = rest
  if (name === 'transaction') return { kind: 'setTransaction', ...modesOf(rest.slice(1)) }
  if (name === 'characteristics' || equals === 'characteristics') return { kind: 'setSession' }
  if (name !== 'transaction_isolation' || (equals !== '=' && equals !== 'to')) return undefined
  return { kind: 'setTransaction', unknown: value.join(' ') }
}

/** More than all modes together have: the scanner may have left some out. */
const MAX_MODE_WORDS = 20

function modesOf(words: LeadingTokens): TransactionModes {
  const modes: { -readonly [Name in keyof TransactionModes]: TransactionModes[Name] } = {}
  let rest = words
  if (rest.length >= MAX_MODE_WORDS) return { unknown: rest.join(' ') }
  while (rest.length > 0) {
    const known = MODES.find(({ said }) => said.every((word, place) => rest[place] === word))
    if (known === undefined) return { ...modes, unknown: rest.join(' ') }
    Object.assign(modes, known.means)
    rest = rest.slice(known.said.length)
  }
  return modes
}

interface Mode {
  readonly said: LeadingTokens
  readonly means: TransactionModes
}

const mode = (said: string, means: TransactionModes): Mode => ({ said: said.split(' '), means })

/** In PostgreSQL, READ UNCOMMITTED is READ COMMITTED. */
const MODES: readonly Mode[] = [
  mode(',', {}),
  mode('isolation level serializable', { isolation: 'serializable' }),
  mode('isolation level repeatable read', { isolation: 'repeatable read' }),
  mode('isolation level read committed', { isolation: 'read committed' }),
  mode('isolation level read uncommitted', { isolation: 'read committed' }),
  mode('read only', { readOnly: true }),
  mode('read write', { readOnly: false }),
  mode('not deferrable', { deferrable: false }),
  mode('deferrable', { deferrable: true }),
]
