import type { Checker } from '../history.ts'
import { foundUnder, HELD } from './foundKeys.ts'

/** When all is quiet, nothing is held. */
export const nothingHeld: Checker = {
  name: 'nothing left held',
  promise: 'When all workers have ended, no lock, lease, permit or transaction is left.',
  check(history) {
    return foundUnder(history, HELD).map(({ entry: { op, key, at, note }, rest }) => {
      const text = `${rest} is still held when all is quiet${note === undefined ? '' : `: ${note}`}`
      return { invariant: this.name, scenario: history.scenario, key, text, ops: op === '' ? [] : [op], at }
    })
  },
}
