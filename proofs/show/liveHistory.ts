import type { Entry, History } from '../history.ts'

/**
 * What checkers can look at while operations are in flight. The history was taken first: whatever it says is done is in the database
 * afterwards. Rows of operations that began since are left out, because nothing is known of them. Balances have their effect already:
 * a checker that compares balances with rows has to wait until all is quiet.
 */
export function liveHistory(history: History, found: readonly Entry[]): History {
  const known = new Set(history.entries.map(({ op }) => op))
  return { ...history, entries: [...history.entries, ...found.filter(({ op }) => op === '' || known.has(op))] }
}
