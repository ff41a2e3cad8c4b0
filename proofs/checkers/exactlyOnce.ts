import type { Checker, Entry, History, Violation } from '../history.ts'
import { EFFECT, foundThings, foundUnder } from './foundKeys.ts'
import { listAt, operationsOf, outcomeOf } from './operations.ts'
import { counted, handful, listed, nameOf } from './wording.ts'

/** An acknowledged operation has left one effect, a failed one none, and no operation has left two. */
export const exactlyOnce: Checker = {
  name: 'exactly once',
  promise: 'An acknowledged operation has its effect once, a failed one has none, and no operation has two.',
  check(history) {
    const { scenario } = history
    const operations = operationsOf(history)
    const effects = new Map<string, { readonly entry: Entry; readonly rest: string }[]>()
    for (const effect of foundUnder(history, EFFECT)) listAt(effects, effect.entry.op).push(effect)
    const violations: Violation[] = []
    const tell = (op: string, key: string, at: number, text: string): void => {
      const ops = op === '' ? [] : [op]
      violations.push({ invariant: this.name, scenario, key, text: `${nameOf(operations, op)} ${text}`, ops, at })
    }
    for (const [op, left] of effects) {
      const operation = operations.get(op)
      const first = left[0]
      if (first === undefined) continue
      const at = operation?.end?.at ?? first.entry.at
      const times = left.length === 1 ? '' : ` ${left.length} times`
      if (operation === undefined)
        tell(op, first.rest, at, `has changed ${first.rest}${times}, which no operation had asked for`)
      else if (outcomeOf(operation) === 'failed') {
        tell(op, first.rest, at, `received an error, and has changed ${first.rest} all the same${times}`)
      } else if (left.length > 1)
        tell(op, first.rest, at, `has changed ${first.rest} ${left.length} times instead of once`)
      else if (isAnother(first.entry, operation.end))
        tell(op, first.rest, at, `received ${operation.end?.value}, and has made ${first.entry.value} of ${first.rest}`)
    }
    for (const operation of operations.values()) {
      if (outcomeOf(operation) !== 'done' || effects.has(operation.id)) continue
      const { id, key, end } = operation
      tell(id, key, end?.at ?? 0, `was acknowledged, and has left nothing at ${key}`)
    }
    return violations
  },
}

/** Whether an effect carries another value than the answer to its operation. */
function isAnother({ value: left }: Entry, end: Entry | undefined): boolean {
  return end?.what === 'done' && left !== undefined && end.value !== undefined && String(left) !== String(end.value)
}

/** What the creator receives beside the thing: the note of its end. */
export const CREATED = 'created'

/**
 * Of each key there is at most one: one row in the database, and one thing that the world outside took, however often it was sent. Where
 * an operation was acknowledged, the row is there, and is what the answer says; at most one was acknowledged as the creator. `what` is what there is one of: `position`.
 */
export function onePerKey(what: string): Checker {
  const name = 'one per key'
  return {
    name,
    promise: `There is one ${what} for each key, however many ask for it, and an answer that says that it is there is right.`,
    check(history) {
      const { scenario } = history
      const operations = operationsOf(history)
      const rows = new Map<string, Entry[]>()
      for (const row of foundThings(history)) listAt(rows, row.key).push(row)
      const violations: Violation[] = []
      const tell = (key: string, text: string, entries: readonly Entry[]): void => {
        const ops = handful([...new Set(entries.map(({ op }) => op))].filter((op) => op !== ''))
        violations.push({ invariant: name, scenario, key, text, ops, at: entries.at(-1)?.at ?? 0 })
      }
      const ends = new Map<string, Entry[]>()
      for (const { key, end, wrote } of operations.values()) if (wrote && end !== undefined) listAt(ends, key).push(end)
      for (const [key, entries] of rows) {
        if (entries.length < 2) continue
        // Rows do not say when they were made; those who wrote do.
        const text = `${counted(entries.length, what)} are there for ${key}: ${listed(entries.map(shown))}`
        tell(key, text, ends.get(key) ?? entries)
      }
      for (const [key, entries] of takenOutside(history)) {
        if (entries.length < 2) continue
        const each = entries.map((entry) => `${shown(entry)} from ${nameOf(operations, entry.op)}`)
        tell(key, `the world outside took ${counted(entries.length, what)} for ${key}: ${listed(each)}`, entries)
      }
      const missing = new Set<string>()
      const creators = new Map<string, Entry[]>()
      for (const operation of operations.values()) {
        const { id, key, end } = operation
        if (outcomeOf(operation) !== 'done' || end === undefined) continue
        if (end.note === CREATED) listAt(creators, key).push(end)
        const [row, another] = rows.get(key) ?? []
        if (row === undefined) {
          if (missing.has(key)) continue
          missing.add(key)
          tell(key, `${nameOf(operations, id)} received a ${what} for ${key}, and there is none`, [end])
        } else if (another === undefined && end.value !== undefined && String(end.value) !== String(row.value)) {
          const told = `${nameOf(operations, id)} received the ${what} ${end.value} for ${key}`
          tell(key, `${told}, and the one that is there is ${row.value}`, [end])
        }
      }
      for (const [key, entries] of creators) {
        if (entries.length < 2) continue
        const each = entries.map(({ op }) => nameOf(operations, op))
        tell(key, `${listed(each)} were each acknowledged as the creator of the ${what} for ${key}`, entries)
      }
      return violations
    },
  }
}

/** The same thing sent again is still one. */
function takenOutside(history: History): Map<string, Entry[]> {
  const taken = new Map<string, Entry[]>()
  const known = new Map<string, Set<Entry['value']>>()
  for (const entry of history.entries) {
    if (entry.what !== 'took') continue
    let values = known.get(entry.key)
    if (values === undefined) known.set(entry.key, (values = new Set()))
    if (values.has(entry.value)) continue
    values.add(entry.value)
    listAt(taken, entry.key).push(entry)
  }
  return taken
}

function shown(entry: Entry): string {
  return entry.value === undefined ? 'one' : String(entry.value)
}
