import type { Checker } from '../history.ts'
import { CONNECTIONS, foundUnder } from './foundKeys.ts'
import { numberOf } from './operations.ts'
import { counted } from './wording.ts'

/** When all is quiet, every pool has its connections back. */
export const noConnectionLeaked: Checker = {
  name: 'no connection leaked',
  promise: 'When all workers have ended, every connection is back in its pool.',
  check(history) {
    return foundUnder(history, CONNECTIONS)
      .filter(({ entry }) => numberOf(entry) > 0)
      .map(({ entry, rest }) => {
        const text = `${rest} has ${counted(numberOf(entry), 'connection')} that did not come back to the pool`
        return { invariant: this.name, scenario: history.scenario, key: entry.key, text, ops: [], at: entry.at }
      })
  },
}
