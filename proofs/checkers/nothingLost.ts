import type { Checker, Violation } from '../history.ts'
import { operationsOf, outcomeOf } from './operations.ts'
import { named } from './wording.ts'

/**
 * What was committed arrives, and what was rolled back does not. The writers are the operations that say that they wrote; where none
 * says so, all of them.
 */
export const nothingLost: Checker = {
  name: 'no committed event lost',
  promise: 'The event of an acknowledged operation arrives, and that of a failed one does not.',
  check(history) {
    const arrivedAt = new Map<string, number>()
    for (const { what, op, at } of history.entries) if (what === 'took' && !arrivedAt.has(op)) arrivedAt.set(op, at)
    const operations = [...operationsOf(history).values()]
    const someSay = operations.some(({ wrote }) => wrote)
    const violations: Violation[] = []
    for (const operation of operations) {
      const { id, key, end, wrote } = operation
      const arrived = arrivedAt.get(id)
      const outcome = outcomeOf(operation)
      let text: string
      if (outcome === 'done' && arrived === undefined && (wrote || !someSay)) {
        text = `${named(operation)} was acknowledged, and its event of ${key} never arrived`
      } else if (outcome === 'failed' && arrived !== undefined) {
        text = `${named(operation)} received an error, and its event of ${key} arrived all the same`
      } else continue
      const at = arrived ?? end?.at ?? 0
      violations.push({ invariant: this.name, scenario: history.scenario, key, text, ops: [id], at })
    }
    return violations
  },
}
