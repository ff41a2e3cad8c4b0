import type { Entry, History } from '../history.ts'

/**
 * What is found when all is quiet is mostly the thing itself: the wallet and its balance. Some of it is about something else, and says
 * so by how its key begins.
 */

/** A row that an operation left behind: `effect:wallet 3`, with `op`. */
export const EFFECT = 'effect:'
/** Something that should have been released: `held:lease Instance:4`. */
export const HELD = 'held:'
/** Connections that are not back in the pool: `connections:w2`, with their number as the value. */
export const CONNECTIONS = 'connections:'

/** The entries whose key begins so, and what comes after it. */
export function foundUnder(history: History, prefix: string): { readonly entry: Entry; readonly rest: string }[] {
  return history.entries
    .filter((entry) => entry.what === 'found' && entry.key.startsWith(prefix))
    .map((entry) => ({ entry, rest: entry.key.slice(prefix.length) }))
}

/** The things themselves. */
export function foundThings(history: History): Entry[] {
  const others = [EFFECT, HELD, CONNECTIONS]
  return history.entries.filter(({ what, key }) => what === 'found' && !others.some((prefix) => key.startsWith(prefix)))
}
