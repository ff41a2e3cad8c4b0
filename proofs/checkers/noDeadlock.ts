import type { Checker } from '../history.ts'

/** The code that a note begins with, or that of the reason behind it, in brackets. */
const DEADLOCK_DETECTED = /(?:^|\()40P01\b/

/** Nobody was told by the server that it was in a deadlock. */
export const noDeadlock: Checker = {
  name: 'no deadlock',
  promise: 'No two operations wait for each other until the server has to end one of them.',
  check({ scenario, entries }) {
    return entries
      .filter(({ what, note }) => (what === 'failed' || what === 'unknown') && DEADLOCK_DETECTED.test(note ?? ''))
      .map(({ by, op, key, at, note }) => {
        const text = `${by} (${op}) was ended by the server at ${key}, in a deadlock: ${note}`
        return { invariant: this.name, scenario, key, text, ops: [op], at }
      })
  },
}
