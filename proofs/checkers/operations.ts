import { ENDS, type Entry, type History } from '../history.ts'

/** One operation, put together from what is known of it. */
export interface Operation {
  readonly id: string
  /** The process that asked. */
  readonly by: string
  readonly key: string
  /** Before all other times if it was not recorded when it was asked: then nothing counts as earlier. */
  readonly askedAt: number
  /** Its answer. If there are two, the second counts; without one, the outcome is unknown. */
  readonly end: Entry | undefined
  /** Whether it says that it has written something. */
  readonly wrote: boolean
}

/** All operations by their ids. What the world outside and the database say of an operation does not make it one that was asked. */
export function operationsOf(history: History): Map<string, Operation> {
  const operations = new Map<string, { -readonly [field in keyof Operation]: Operation[field] }>()
  for (const entry of history.entries) {
    const { op, by, key, what, at } = entry
    if (op === '' || what === 'took' || what === 'found') continue
    let operation = operations.get(op)
    if (operation === undefined) {
      operation = { id: op, by, key, askedAt: -Infinity, end: undefined, wrote: false }
      operations.set(op, operation)
    }
    if (what === 'asked') operation.askedAt = at
    if (what === 'wrote') operation.wrote = true
    if (ENDS.has(what)) operation.end = entry
  }
  return operations
}

/** What is certain of an operation: that it is done, that it did not happen, or nothing. */
export function outcomeOf(operation: Operation): 'done' | 'failed' | 'open' {
  const what = operation.end?.what
  return what === 'done' || what === 'failed' ? what : 'open'
}

/** The number that an entry carries. An entry without it was recorded wrong, and shows no violation. */
export function numberOf(entry: Entry): number {
  // PostgreSQL's bigint comes as text.
  const { value: raw } = entry
  const value = typeof raw === 'string' && raw.trim() !== '' ? Number(raw) : raw
  if (typeof value === 'number' && Number.isFinite(value)) return value
  throw new TypeError(`'${entry.what}' of ${entry.by} on ${entry.key} has to carry a number, not ${raw}`)
}

/** The list at a key, made on first use. */
export function listAt<Name, Of>(lists: Map<Name, Of[]>, name: Name): Of[] {
  let list = lists.get(name)
  if (list === undefined) lists.set(name, (list = []))
  return list
}
