import type { Checker } from '../history.ts'

/** An operation fails with this reason only: every other failure was retried. */
export function failsOnlyWith(reason: string): Checker {
  const name = 'no other failure'
  return {
    name,
    promise: `An operation fails only with ${reason}: everything else that goes wrong is tried again.`,
    check({ scenario, entries }) {
      return entries
        .filter(({ what, op, note = '' }) => what === 'failed' && op !== '' && !note.startsWith(reason))
        .map(({ by, op, key, at, note }) => {
          const text = `${by} (${op}) failed at ${key} for another reason: ${note}`
          return { invariant: name, scenario, key, text, ops: [op], at }
        })
    },
  }
}
