import type { Checker, Entry, Violation } from '../history.ts'
import { listAt, type Operation, operationsOf } from './operations.ts'
import { named } from './wording.ts'

const REFUSED = 'LOCKSTEP_LEASE_HELD'

/** An operation that may have held its key, from when it asked to when it had certainly released it. */
interface Span {
  readonly from: number
  readonly to: number
}

/**
 * A caller can be refused because the key is held only while another caller can hold it: of those that ask at the same time, one gets it.
 * An operation that ended well holds it until its end; for all others the end is not known.
 */
export const refusedWhileHeld: Checker = {
  name: 'refused while held',
  promise:
    'An operation is refused because of another holder only while there may be one: of all that ask at once, one is granted.',
  check(history) {
    const holders = new Map<string, Span[]>()
    const refused: (Operation & { readonly end: Entry })[] = []
    for (const operation of operationsOf(history).values()) {
      const { key, askedAt, end } = operation
      if (end?.what === 'failed' && end.note?.startsWith(REFUSED) === true) refused.push({ ...operation, end })
      else listAt(holders, key).push({ from: askedAt, to: end?.what === 'done' ? end.at : Infinity })
    }
    const held = new Map([...holders].map(([key, spans]) => [key, merged(spans)]))
    return refused.flatMap((operation): Violation[] => {
      const { id, key, askedAt, end } = operation
      if (overlapsOne(held.get(key) ?? [], askedAt, end.at)) return []
      const text = `${named(operation)} was refused ${key} because of another holder, and there was none`
      return [{ invariant: this.name, scenario: history.scenario, key, text, ops: [id], at: end.at }]
    })
  },
}

/** Spans that do not touch, in ascending order. */
function merged(spans: readonly Span[]): Span[] {
  const all: { from: number; to: number }[] = []
  for (const { from, to } of spans.toSorted((one, other) => one.from - other.from)) {
    const last = all.at(-1)
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to)
    else all.push({ from, to })
  }
  return all
}

/** Halving finds the last span that begins before the end. */
function overlapsOne(spans: readonly Span[], from: number, to: number): boolean {
  let [low, high] = [0, spans.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((spans[middle]?.from ?? Infinity) <= to) low = middle + 1
    else high = middle
  }
  return (spans[low - 1]?.to ?? -Infinity) >= from
}
