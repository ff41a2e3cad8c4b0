import type { Entry, FaultEntry, History, What } from '../history.ts'

/** Made-up histories, in which tests plant what a checker has to find. */

export const SCENARIO = 'made up'

/** At so many milliseconds. */
export function entry(
  atMs: number,
  by: string,
  op: string,
  what: What,
  key: string,
  parts: Partial<Pick<Entry, 'value' | 'fence' | 'note'>> = {},
): Entry {
  return { at: atMs * 1000, by, scenario: SCENARIO, op, what, key, ...parts }
}

/** The world outside takes something. */
export function took(
  atMs: number,
  op: string,
  key: string,
  parts: Partial<Pick<Entry, 'value' | 'fence'>> = {},
): Entry {
  return entry(atMs, 'outside', op, 'took', key, parts)
}

/** It stands in the database in the end. */
export function found(key: string, value?: number | string, op = ''): Entry {
  return entry(1_000_000, 'database', op, 'found', key, value === undefined ? {} : { value })
}

/** An operation from its request to its answer. */
export function operation(
  by: string,
  op: string,
  key: string,
  [fromMs, toMs]: readonly [number, number],
  end: 'done' | 'failed' | 'unknown' | 'killed',
  parts: Partial<Pick<Entry, 'value' | 'note'>> = {},
): Entry[] {
  const asked = entry(fromMs, by, op, 'asked', key)
  return end === 'killed' ? [asked] : [asked, entry(toMs, by, op, end, key, parts)]
}

/** A holder that was sure at each of these moments, in milliseconds. */
export function holder(by: string, op: string, key: string, moments: readonly number[], fence?: string): Entry[] {
  const parts = fence === undefined ? {} : { fence }
  const [first = 0, last = first] = [moments[0], moments.at(-1)]
  return [
    entry(first - 1, by, op, 'granted', key, parts),
    ...moments.map((moment) => entry(moment, by, op, 'active', key)),
    entry(last + 1, by, op, 'released', key),
  ]
}

/** In the order of time, as all histories are. */
export function historyOf(...parts: (Entry | readonly Entry[])[]): History {
  const faults: FaultEntry[] = []
  const entries = parts.flat().toSorted((one, other) => one.at - other.at)
  return { scenario: SCENARIO, form: 'naive', entries, faults }
}

/** What a checker says, without the rest. */
export function texts(violations: readonly { readonly text: string }[]): string[] {
  return violations.map(({ text }) => text)
}
