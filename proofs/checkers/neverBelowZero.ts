import type { Checker, Entry, Violation } from '../history.ts'
import { foundThings } from './foundKeys.ts'
import { numberOf, operationsOf, outcomeOf } from './operations.ts'
import { named } from './wording.ts'

/** No operation left an account with less than nothing. The value of an operation that is done is what it left. */
export const neverBelowZero: Checker = {
  name: 'never below zero',
  promise: 'No operation that checks the balance before it takes something leaves less than nothing.',
  check(history) {
    const { scenario } = history
    const violations: Violation[] = []
    const report = (key: string, text: string, ops: readonly string[], at: number): void => {
      violations.push({ invariant: this.name, scenario, key, text, ops, at })
    }
    for (const operation of operationsOf(history).values()) {
      const { id, key, end } = operation
      if (end === undefined || outcomeOf(operation) !== 'done' || end.value === undefined) continue
      const left = numberOf(end)
      if (left < 0) report(key, `${named(operation)} was acknowledged and left ${key} at ${left}`, [id], end.at)
    }
    for (const entry of foundThings(history)) {
      const balance = balanceOf(entry)
      if (balance < 0) report(entry.key, `${entry.key} stands at ${balance}`, [], entry.at)
    }
    return violations
  },
}

function balanceOf(entry: Entry): number {
  return entry.value === undefined ? 0 : numberOf(entry)
}
