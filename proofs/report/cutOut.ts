import { EFFECT } from '../checkers/foundKeys.ts'
import { ENDS, type Entry, type FaultEntry, type History, type Violation } from '../history.ts'

/** More than this is unreadable. */
export const MOST_LANES = 8
export const MOST_OPERATIONS = 20
const MOST_MARKS_WITHOUT_BAR = 14
const MOST_FOUND = 4
const MOST_FAULTS = 10

/** Who is no process and has no operations: what happens there is a mark without a bar. */
export function hasBars(by: string): boolean {
  return by !== 'outside' && by !== 'database'
}

/** No bar has space for it. */
export function isLoose({ by, op }: Entry): boolean {
  return op === '' || !hasBars(by)
}

/** The workers that a fault struck. */
export function struckBy(fault: FaultEntry): string[] {
  return fault.on.split(/[\s,]+/).filter((name) => name !== '')
}

interface Span {
  readonly from: number
  readonly to: number
}

/** What a picture of the violation needs, and no more: a round has thousands of entries. Cutting twice changes nothing. */
export function cutOut(history: History, violation: Violation): History {
  const operations = byOperation(history.entries)
  const shown = shownFirst(operations, violation)
  const spans = shown.map((op) => spanOf(withoutFound(operations.get(op) ?? [])))
  const window = windowOf(
    shown.flatMap((op) => operations.get(op) ?? []),
    violation,
  )
  const lanes = new Set(shown.flatMap((op) => (operations.get(op) ?? []).map(({ by }) => by)))
  const faults = faultsOf(
    history.faults,
    shown.flatMap((op) => operations.get(op) ?? []),
  )
  for (const op of neighbours(operations, violation, spans)) {
    if (shown.length >= MOST_OPERATIONS) break
    const where = new Set(operations.get(op)?.map(({ by }) => by))
    if (shown.includes(op) || new Set([...lanes, ...where]).size > MOST_LANES) continue
    shown.push(op)
    for (const by of where) lanes.add(by)
  }
  const kept = new Set(shown)
  const loose = new Set(looseMarks(history.entries, violation, window, kept))
  return { ...history, entries: history.entries.filter((entry) => kept.has(entry.op) || loose.has(entry)), faults }
}

/** The operations of the violation; or, where it names none, those around its moment. */
function shownFirst(operations: ReadonlyMap<string, readonly Entry[]>, violation: Violation): string[] {
  const named = violation.ops.filter((op) => operations.has(op)).slice(0, MOST_OPERATIONS)
  return named.length > 0 ? named : neighbours(operations, violation, [{ from: -Infinity, to: Infinity }]).slice(0, 6)
}

/** Operations on the same key that were in progress at the same time as one of these; the nearest to the violation first. */
function neighbours(
  operations: ReadonlyMap<string, readonly Entry[]>,
  violation: Violation,
  spans: readonly Span[],
): string[] {
  return [...operations]
    .map(([op, entries]) => ({ op, entries, span: spanOf(withoutFound(entries)) }))
    .filter(({ entries }) => entries.some(({ key, by }) => hasBars(by) && isOf(key, violation)))
    .filter(({ span }) => spans.some((each) => overlap(each, span)))
    .map(({ op, span }) => ({ op, away: Math.max(span.from - violation.at, violation.at - span.to, 0) }))
    .toSorted((one, other) => one.away - other.away)
    .map(({ op }) => op)
}

/** What reached the world outside in the window, and what is found in the end. */
function looseMarks(
  entries: readonly Entry[],
  violation: Violation,
  window: Span,
  kept: ReadonlySet<string>,
): readonly Entry[] {
  const ofKey = entries.filter((entry) => isOf(entry.key, violation) && isLoose(entry) && !kept.has(entry.op))
  const found = ofKey.filter(({ what }) => what === 'found').slice(-MOST_FOUND)
  const inWindow = ofKey
    .filter(({ what, at }) => what !== 'found' && at >= window.from && at <= window.to)
    .toSorted((one, other) => Math.abs(one.at - violation.at) - Math.abs(other.at - violation.at))
  return [...inWindow.slice(0, MOST_MARKS_WITHOUT_BAR), ...found]
}

/** Faults that struck where and while one of these operations was in progress. */
function faultsOf(faults: readonly FaultEntry[], entries: readonly Entry[]): FaultEntry[] {
  const spans = [...byOperation(withoutFound(entries)).values()].map((of) => ({
    span: spanOf(of),
    // An operation without an end continues until its process dies, which no entry records.
    to: of.some(({ what }) => ENDS.has(what)) ? spanOf(of).to : Infinity,
    lanes: new Set(of.map(({ by }) => by)),
  }))
  return faults
    .filter((fault) =>
      spans.some(
        ({ span, to, lanes }) =>
          overlap({ from: fault.at, to: fault.until }, { from: span.from, to }) &&
          struckBy(fault).some((name) => name === 'database' || lanes.has(name)),
      ),
    )
    .slice(0, MOST_FAULTS)
}

/** From the first to the last moment of the operations and the violation; what is found long after is not a part of it. */
export function windowOf(entries: readonly Entry[], violation: Violation): Span {
  const span = spanOf(withoutFound(entries))
  return { from: Math.min(span.from, violation.at), to: Math.max(span.to, violation.at) }
}

export function byOperation(entries: readonly Entry[]): Map<string, Entry[]> {
  const operations = new Map<string, Entry[]>()
  for (const entry of entries) {
    if (entry.op === '') continue
    const known = operations.get(entry.op)
    if (known === undefined) operations.set(entry.op, [entry])
    else known.push(entry)
  }
  return operations
}

function withoutFound(entries: readonly Entry[]): Entry[] {
  return entries.filter(({ what }) => what !== 'found')
}

function overlap(one: Span, other: Span): boolean {
  return one.from <= other.to && other.from <= one.to
}

function spanOf(entries: readonly Entry[]): Span {
  let [from, to] = [Infinity, -Infinity]
  for (const { at } of entries) [from, to] = [Math.min(from, at), Math.max(to, at)]
  return { from, to }
}

/** A violation of the whole (a total that is not conserved) has no key: everything is of it. */
function isOf(key: string, violation: Violation): boolean {
  return violation.key === '' || thingOf(key) === thingOf(violation.key)
}

/** `effect:Wallet:3` is about Wallet:3. */
function thingOf(key: string): string {
  return key.startsWith(EFFECT) ? key.slice(EFFECT.length) : key
}
