import type { BlockingNode, Claim, ListedLock, ListedWaiter, LockListing } from '../index.ts'
import type { Call, Command, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { refreshEverySecond } from './refreshEverySecond.ts'
import { type Database, withDatabase } from './withDatabase.ts'
import { count, formatAge, shorten, singleLine } from './formatting.ts'

/** More than these of one lock, or behind one session, say no more; `--json` has them all. */
const MAX_SHOWN = 10
/** What the other columns take of a screen; the key has the rest. */
const OTHER_COLUMNS = 76
const MIN_KEY_WIDTH = 16
const APPLICATION_WIDTH = 20

export const locksCommand: Command = {
  name: 'locks',
  summary: 'Show locks and who waits for them',
  usage: '[--watch]',
  details: `Lists the advisory locks of the database: Lockstep's by key, others by number. Then it shows who blocks whom, as a tree.
It changes nothing.

"held" is the age of the holder's transaction, because PostgreSQL does not record when it granted a lock. "waits" is one
wait at the server: Lockstep waits in slices of at most two seconds.`,
  examples: [
    { line: 'pg-lockstep locks', does: 'show the locks now' },
    {
      line: 'pg-lockstep locks --watch --statements',
      does: 'refresh every second, with the statement of each session',
    },
  ],
  options: ['url', 'schema', 'driver', 'watch', 'statements', 'json'],
  words: [],
  run({ values }) {
    return withDatabase(values, (database) => look(database, values))
  },
  watch({ values }, show, stop) {
    return withDatabase(values, (database) => refreshEverySecond(() => look(database, values), show, stop))
  },
}

async function look({ lockstep, driver }: Database, values: Call['values']): Promise<Outcome> {
  const statements = values.statements === 'true'
  const listing = await lockstep.locks.list({ statements })
  const json = { ok: true, command: 'locks', schema: lockstep.schema, driver, at: new Date().toISOString() }
  return {
    exitCode: 0,
    json: { ...json, ...seenIn(listing) },
    text: (terminal) => report(listing, statements, terminal),
  }
}

function seenIn({ locks, tree }: LockListing): { locks: unknown; tree: unknown } {
  // No caller waits in the memory of this program.
  return forJson({ locks: locks.map(({ queued: _queued, ...lock }) => lock), tree })
}

function report({ locks, tree }: LockListing, statements: boolean, terminal: Terminal): string {
  if (locks.length === 0) return 'No advisory lock is held or waited for in this database.'
  const { columns, paint } = terminal
  const head = ['KEY', 'MODE', 'PID', 'APPLICATION', 'STATE', 'FOR', 'WAITERS', ...(statements ? ['STATEMENT'] : [])]
  const rows = locks.flatMap((lock) => rowsOf(lock, statements, terminal))
  const list = table([head.map((title) => paint('dim', title)), ...rows], columns)
  const waiting = locks.reduce((sum, { waiters }) => sum + waiters.length, 0)
  const verdict = paint('bold', `${count(locks.length, 'lock')}, ${count(waiting, 'waiter')}.`)
  if (tree.length === 0) return `${list}\n\n${verdict}`
  const drawing = tree.flatMap((root) => draw(root, '', '', terminal)).join('\n')
  return `${list}\n\n${paint('bold', 'Who blocks whom')}\n${drawing}\n\n${verdict}`
}

function rowsOf(lock: ListedLock, statements: boolean, terminal: Terminal): string[][] {
  const { columns, paint } = terminal
  const name = shorten(nameOf(lock), Math.max(MIN_KEY_WIDTH, columns - OTHER_COLUMNS))
  const row = (claim: Claim, since: string): string[] => [
    '',
    claim.mode,
    pidOf(claim),
    shorten(singleLine(claim.application ?? '-'), APPLICATION_WIDTH),
    claim.state ?? '-',
    since,
    '',
    ...(statements ? [singleLine(claim.statement ?? '-')] : []),
  ]
  const holders = lock.holders.map((holder) => row(holder, `held ${formatAge(holder.heldForMs)}`))
  const waiters = lock.waiters.slice(0, MAX_SHOWN).map((waiter) => row(waiter, paint('yellow', waitOf(waiter))))
  const [first = [], ...others] = [...holders, ...waiters]
  first[0] = name
  if (lock.waiters.length > 0) first[6] = String(lock.waiters.length)
  const hidden = lock.waiters.length - MAX_SHOWN
  return [first, ...others, ...(hidden > 0 ? [['', `… ${hidden} more`]] : [])]
}

/** One session and those behind it. `lead` stands before its own line, `indent` before theirs. */
function draw(node: BlockingNode, lead: string, indent: string, terminal: Terminal): string[] {
  const { waitsFor } = node
  const who = [pidOf(node), singleLine(node.application ?? ''), node.state ?? ''].filter((part) => part !== '')
  const line = `${lead}${who.join('  ')}${describeNode(node)}`
  const shown = node.blocks.slice(0, MAX_SHOWN)
  const hidden = node.blocks.length - shown.length
  const below = shown.flatMap((each, place) => {
    const last = place === shown.length - 1 && hidden === 0
    return draw(each, `${indent}${last ? '└─ ' : '├─ '}`, `${indent}${last ? '   ' : '│  '}`, terminal)
  })
  const rest = hidden > 0 ? [`${indent}└─ … ${hidden} more`] : []
  return [waitsFor === undefined ? terminal.paint('red', line) : line, ...below, ...rest]
}

function describeNode({ waitsFor, heldForMs, repeated }: BlockingNode): string {
  const again = repeated ? ' (see above)' : ''
  if (waitsFor === undefined) return heldForMs === undefined ? again : `  open for ${formatAge(heldForMs)}${again}`
  const { id, kind } = waitsFor
  return `  waits for ${id === undefined ? (KINDS[kind] ?? `a lock (${kind})`) : nameOf({ ...waitsFor, id })}${again}`
}

const KINDS: Readonly<Record<string, string>> = {
  transactionid: 'a row',
  tuple: 'a row',
  relation: 'a table',
  advisory: 'an advisory lock of another kind',
}

function nameOf({ key, id }: { readonly key: string | undefined; readonly id: bigint }): string {
  return key === undefined ? String(id) : singleLine(key)
}

function pidOf({ pid }: { readonly pid: number }): string {
  return pid === 0 ? 'prepared' : String(pid)
}

function waitOf({ waitedMs }: ListedWaiter): string {
  return `waits ${formatAge(waitedMs)}`
}
