import type { HistoryEntry, Key, LeaseInfo, Lockstep } from '../index.ts'
import type { Call, Command, OptionName, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { parseNumber } from './parseValues.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { userName } from './userName.ts'
import { withDatabase } from './withDatabase.ts'
import { count, formatAge, formatTime, shorten, singleLine } from './formatting.ts'

/** More waiters of one lease say no more; `--json` has them all. */
const MAX_SHOWN = 10
/** What the other columns take of a screen; the key has the rest. */
const OTHER_COLUMNS = 70
const MIN_KEY_WIDTH = 16
const HOLDER_WIDTH = 32

const RELEASE = 'Write `pg-lockstep leases release KEY --reason TEXT`, with KEY such as Instance:42.'
const HISTORY = 'Write `pg-lockstep leases history KEY`, with KEY such as Instance:42.'

export const leasesCommand: Command = {
  name: 'leases',
  summary: 'Show leases, their holders and waiters. Take one away, or show its history',
  usage: '[release KEY --reason TEXT [--terminate] | history KEY]',
  details: `Lists the leases that are held or waited for. "left" is the time until the lease ends if its holder does not renew it. A
holder that is alive renews it every third of its ttl.

release takes a lease away from its holder, and records who did it and why. The holder's lease.transaction() can then no
longer commit. If one is open, release waits for it. With --terminate it ends that session instead.

history shows past holders of a lease, the latest first.`,
  examples: [
    { line: 'pg-lockstep leases --prefix Instance:', does: 'list leases whose key has this prefix' },
    { line: 'pg-lockstep leases release Instance:42 --reason "its host is gone"', does: 'take a lease away' },
    { line: 'pg-lockstep leases history Instance:42 --limit 10', does: 'show its past holders' },
  ],
  options: ['url', 'schema', 'driver', 'prefix', 'reason', 'by', 'terminate', 'wait', 'limit', 'json'],
  words: ['release', 'history'],
  moreWords: 1,
  run(call) {
    const work = workOf(call)
    return withDatabase(call.values, ({ lockstep }) => work(lockstep))
  },
}

type Work = (lockstep: Lockstep) => Promise<Outcome>

/** Which options belong to which use. */
const OF: Readonly<Record<'list' | 'release' | 'history', readonly OptionName[]>> = {
  list: ['prefix'],
  release: ['reason', 'by', 'terminate', 'wait'],
  history: ['limit'],
}

/** What is to be done, checked before a database is asked. */
function workOf({ words, values }: Call): Work {
  const [verb, key] = words
  const use = verb === 'release' || verb === 'history' ? verb : 'list'
  for (const [other, options] of Object.entries(OF)) {
    const stray = other === use ? undefined : options.find((option) => values[option] !== undefined)
    const whose = other === 'list' ? 'the list of leases' : `\`leases ${other}\``
    if (stray !== undefined) throw new UsageError(`--${stray} is for ${whose}.`, 'See `pg-lockstep help leases`.')
  }
  if (use === 'list') return (lockstep) => list(lockstep, values.prefix ?? '')
  const advice = use === 'release' ? RELEASE : HISTORY
  if (key === undefined || key === '') throw new UsageError('No lease was named.', advice)
  // The library looks at it before anything is sent.
  if (use === 'history') {
    const limit = parseNumber('limit', values.limit ?? '100')
    return (lockstep) => history(lockstep, key as Key, limit)
  }
  const { reason, by = userName(), terminate } = values
  if (reason === undefined) throw new UsageError('--reason is missing.', advice)
  const how = { by, reason, terminate: terminate === 'true', waitMs: parseNumber('wait', values.wait ?? '5000') }
  return (lockstep) => release(lockstep, key as Key, how)
}

async function list(lockstep: Lockstep, prefix: string): Promise<Outcome> {
  const leases = await lockstep.leases.list({ prefix })
  const at = new Date()
  return {
    exitCode: 0,
    json: {
      ok: true,
      command: 'leases',
      schema: lockstep.schema,
      at: at.toISOString(),
      leases: forJson({ leases }).leases,
    },
    text: (terminal) => report(leases, at, prefix, terminal),
  }
}

async function release(
  lockstep: Lockstep,
  key: Key,
  how: { by: string; reason: string; terminate: boolean; waitMs: number },
): Promise<Outcome> {
  const { released } = await lockstep.leases.forceRelease(key, how)
  const told =
    released === 0
      ? `${singleLine(key)} is not held: nothing was taken away.`
      : `${singleLine(key)} was taken away from ${count(released, 'holder')}, by ${singleLine(how.by)}.`
  return {
    exitCode: 0,
    json: { ok: true, command: 'leases release', schema: lockstep.schema, key, by: how.by, released },
    text: () => told,
  }
}

async function history(lockstep: Lockstep, key: Key, limit: number): Promise<Outcome> {
  const entries = await lockstep.leases.history(key, { limit })
  return {
    exitCode: 0,
    json: {
      ok: true,
      command: 'leases history',
      schema: lockstep.schema,
      key,
      history: forJson({ entries }).entries,
    },
    text: (terminal) => story(key, entries, terminal),
  }
}

function report(leases: readonly LeaseInfo[], at: Date, prefix: string, terminal: Terminal): string {
  if (leases.length === 0) {
    return `No lease${prefix === '' ? '' : ` of ${singleLine(prefix)}…`} is held or waited for in this database.`
  }
  const head = ['KEY', 'HOLDER', 'FOR', 'LEFT', 'WAITERS'].map((title) => terminal.paint('dim', title))
  const rows = leases.flatMap((lease) => rowsOf(lease, at, terminal))
  const holding = leases.reduce((sum, { holders }) => sum + holders.length, 0)
  const waiting = leases.reduce((sum, { waiters }) => sum + waiters.length, 0)
  const verdict = `${count(leases.length, 'lease')}, ${count(holding, 'holder')}, ${count(waiting, 'waiter')}.`
  return `${table([head, ...rows], terminal.columns)}\n\n${terminal.paint('bold', verdict)}`
}

function rowsOf({ key, permits, holders, waiters }: LeaseInfo, at: Date, { columns, paint }: Terminal): string[][] {
  const since = (begun: Date): string => formatAge(Math.max(0, at.getTime() - begun.getTime()))
  const who = (holder: string): string => shorten(singleLine(holder), HOLDER_WIDTH)
  const held = holders.map((each) => ['', who(each.holder), `held ${since(each.since)}`, formatAge(each.leftMs), ''])
  const waits = waiters
    .slice(0, MAX_SHOWN)
    .map((each) => ['', who(each.holder), paint('yellow', `waits ${since(each.since)}`), '', ''])
  const [first = [], ...others] = [...held, ...waits]
  const taken = permits > 1 ? ` (${holders.length} of ${permits})` : ''
  first[0] = `${shorten(singleLine(key), Math.max(MIN_KEY_WIDTH, columns - OTHER_COLUMNS))}${taken}`
  if (waiters.length > 0) first[4] = String(waiters.length)
  const hidden = waiters.length - MAX_SHOWN
  return [first, ...others, ...(hidden > 0 ? [['', `… ${hidden} more`]] : [])]
}

function story(key: string, entries: readonly HistoryEntry[], { columns, paint }: Terminal): string {
  if (entries.length === 0) return `Nothing is remembered of ${singleLine(key)}.`
  const head = ['ENDED', 'HOLDER', 'HELD FOR', 'ENDING', 'BY', 'WHY'].map((title) => paint('dim', title))
  const rows = entries.map(({ endedAt, since, holder, ending, by, reason }) => [
    formatTime(endedAt),
    shorten(singleLine(holder), HOLDER_WIDTH),
    formatAge(endedAt.getTime() - since.getTime()),
    ending === 'released' ? ending : paint('yellow', ending),
    singleLine(by ?? ''),
    singleLine(reason ?? ''),
  ])
  return table([head, ...rows], columns)
}
