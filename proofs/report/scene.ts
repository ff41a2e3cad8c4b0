import { ENDS, type Entry, type FaultEntry, type History, type Violation, type What } from '../history.ts'
import { EFFECT } from '../checkers/foundKeys.ts'
import { byOperation, cutOut, hasBars, isLoose, struckBy, windowOf } from './cutOut.ts'
import { shortOp } from './opNames.ts'

/** What is to be seen of a violation, before it has a place: lanes, bars, marks, faults. All times are microseconds of the run. */
export interface Scene {
  readonly lanes: readonly Lane[]
  /** The moments that the axis has to show well. */
  readonly points: readonly number[]
  /** The moment of the violation. */
  readonly at: number
  /** When all operations of the violation held the same thing at once. */
  readonly together?: Stretch
  /** Faults that struck the whole database. */
  readonly faults: readonly FaultEntry[]
}

export interface Lane {
  readonly name: string
  readonly bars: readonly Bar[]
  /** What happened here without a bar of its own: outside, in the database. */
  readonly marks: readonly Mark[]
  readonly faults: readonly FaultEntry[]
}

export interface Stretch {
  readonly from: number
  readonly to: number
}

export interface Bar {
  /** Short. */
  readonly op: string
  /** The place among the violation's operations, from 0; undefined for one that only stands nearby. */
  readonly part: number | undefined
  readonly from: number
  /** Undefined if its end was never recorded. */
  readonly to: number | undefined
  /** From when to when it was sure that it holds what it was granted: once for each grant. */
  readonly holds: readonly Stretch[]
  readonly fence?: string
  readonly marks: readonly Mark[]
  /** Moments inside `holds` at which it was sure. */
  readonly active: readonly number[]
}

export interface Mark {
  readonly at: number
  readonly what: What
  readonly text: string
  /** Without the operation's name, which its color shows too. */
  readonly short: string
  readonly part: number | undefined
  /** This is where the promise is broken. */
  readonly isBreach: boolean
}

/** Something happened this near to the violation's moment: it is the breach itself. */
const NEAR = 0.005

export function sceneOf(whole: History, violation: Violation): Scene {
  const history = cutOut(whole, violation)
  const operations = byOperation(history.entries)
  const parts = new Map(violation.ops.filter((op) => operations.has(op)).map((op, index) => [op, index]))
  const main = parts.size > 0 ? history.entries.filter(({ op }) => parts.has(op)) : history.entries
  const window = windowOf(main, violation)
  const breaches = breachesOf(main, violation, window)
  const mark = (entry: Entry): Mark => ({
    at: entry.at,
    what: entry.what,
    text:
      hasBars(entry.by) || entry.op === '' ? textOf(entry) : `${textOf(entry)} (${shortOp(entry.op, entry.scenario)})`,
    short: textOf(entry),
    part: parts.get(entry.op),
    isBreach: breaches.has(entry),
  })
  const bars = [...operations].flatMap(([op, entries]) => barOf(op, parts.get(op), entries, mark))
  // The work of another caller is expected here.
  const isNews = ({ op, key }: Entry): boolean => parts.size === 0 || parts.has(op) || !key.startsWith(EFFECT)
  const loose = history.entries.filter((entry) => isLoose(entry) && isNews(entry))
  const names = new Set([...bars.map(({ lane }) => lane), ...loose.map(({ by }) => by)])
  const lanes = [...names].toSorted(inOrderOfLanes).map((name): Lane => ({
    name,
    bars: bars.filter(({ lane }) => lane === name).map(({ bar }) => bar),
    marks: loose.filter(({ by }) => by === name).map(mark),
    faults: history.faults.filter((fault) => name !== 'database' && struckBy(fault).includes(name)),
  }))
  const together = togetherOf(
    bars.map(({ bar }) => bar).filter(({ part }) => part !== undefined),
    violation.at,
  )
  return {
    lanes,
    points: pointsOf(main, loose, history, violation, window),
    at: violation.at,
    ...(together === undefined ? {} : { together }),
    faults: history.faults.filter((fault) => struckBy(fault).includes('database')),
  }
}

function barOf(
  op: string,
  part: number | undefined,
  entries: readonly Entry[],
  mark: (entry: Entry) => Mark,
): { lane: string; bar: Bar }[] {
  const own = entries.filter(({ by }) => hasBars(by))
  const [first] = own
  if (first === undefined) return []
  const end = own.find(({ what }) => ENDS.has(what))
  const active = own.filter(({ what }) => what === 'active').map(({ at }) => at)
  const fence = own.find((entry) => entry.fence !== undefined)?.fence
  const bar: Bar = {
    op: shortOp(op, first.scenario),
    part,
    from: first.at,
    to: end === undefined ? undefined : Math.max(...own.map(({ at }) => at)),
    holds: holdsOf(own),
    ...(fence === undefined ? {} : { fence }),
    marks: own.map(mark).filter(({ what, isBreach }) => what !== 'asked' && (what !== 'active' || isBreach)),
    active,
  }
  return [{ lane: first.by, bar }]
}

/** Answers before and after prove nothing about others: its claim is only where it was sure. */
function holdsOf(entries: readonly Entry[]): Stretch[] {
  const holds: Stretch[] = []
  let granted: number | undefined
  let sure: { from: number; to: number } | undefined
  for (const { what, at } of entries) {
    if (what === 'granted') granted = at
    else if (what === 'active') {
      if (sure === undefined) holds.push((sure = { from: at, to: at }))
      else sure.to = at
    } else if (what === 'released') {
      if (sure === undefined && granted !== undefined) holds.push({ from: granted, to: at })
      granted = sure = undefined
    }
  }
  return holds
}

function textOf({ what, value, note, key }: Entry): string {
  const shown = value === undefined ? '' : String(value)
  if (what === 'done') return shown === '' ? 'done' : `done: ${shown}`
  if (what === 'active') return 'sure that it holds'
  if (what === 'failed' || what === 'unknown') return note === undefined ? what : `${what}: ${note}`
  if (shown !== '') return `${what} ${shown}`
  // A row that it left behind, or what should not be there.
  return what === 'found' ? `found ${key.startsWith(EFFECT) ? 'its effect' : key}` : what
}

/** What happened at the violation's very moment; otherwise the nearest entry. */
function breachesOf(entries: readonly Entry[], violation: Violation, window: Stretch): ReadonlySet<Entry> {
  const exact = entries.filter(({ what, at }) => what !== 'asked' && at === violation.at)
  if (exact.length > 0) return new Set(exact)
  const candidates = entries.filter(({ what }) => what !== 'asked' && what !== 'active')
  const away = ({ at }: Entry): number => Math.abs(at - violation.at)
  const nearest = candidates.toSorted((one, other) => away(one) - away(other))[0]
  return new Set(nearest !== undefined && away(nearest) <= (window.to - window.from) * NEAR ? [nearest] : [])
}

function togetherOf(bars: readonly Bar[], at: number): Stretch | undefined {
  const away = ({ from, to }: Stretch): number => Math.max(from - at, at - to, 0)
  const holds = bars.flatMap(({ holds: all }) => all.toSorted((one, other) => away(one) - away(other)).slice(0, 1))
  if (holds.length < 2) return undefined
  const from = Math.max(...holds.map((each) => each.from))
  const to = Math.min(...holds.map((each) => each.to))
  return from < to ? { from, to } : undefined
}

/** Of the many moments at which a holder was sure only those next to something else matter. */
function pointsOf(
  main: readonly Entry[],
  loose: readonly Entry[],
  history: History,
  violation: Violation,
  window: Stretch,
): number[] {
  const sure = byOperation(main.filter(({ what }) => what === 'active'))
  const edges = [...sure.values()].flatMap((entries) => {
    const before = entries.findLast(({ at }) => at <= violation.at)
    const after = entries.find(({ at }) => at >= violation.at)
    return [entries[0], before, after, entries.at(-1)].flatMap((entry) => (entry === undefined ? [] : [entry.at]))
  })
  const faults = history.faults.flatMap(({ at, until }) => [at, until])
  return [
    violation.at,
    ...main.filter(({ what }) => what !== 'active').map(({ at }) => at),
    ...loose.filter(({ what }) => what === 'found').map(({ at }) => at),
    ...edges,
    ...faults.filter((at) => at >= window.from && at <= window.to),
  ]
}

/** w1, w1', w2, w10, outside, database. */
function inOrderOfLanes(one: string, other: string): number {
  const rank = (name: string): number => (hasBars(name) ? 0 : name === 'outside' ? 1 : 2)
  return rank(one) - rank(other) || one.localeCompare(other, 'en', { numeric: true })
}
