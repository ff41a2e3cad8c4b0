import type { Checker } from '../history.ts'
import { foundThings } from './foundKeys.ts'
import { numberOf } from './operations.ts'

/** What all accounts hold together when all is quiet is what they held in the beginning. */
export function conservedTotal(total: number): Checker {
  const name = 'conserved total'
  return {
    name,
    promise: 'Moving something between accounts neither makes nor loses any of it.',
    check(history) {
      const accounts = foundThings(history)
      const sum = accounts.reduce((before, account) => before + numberOf(account), 0)
      if (sum === total) return []
      const difference = sum < total ? `${total - sum} are lost` : `${sum - total} came from nowhere`
      const what =
        accounts.length > 1
          ? `${accounts.length} accounts hold ${sum} together`
          : accounts.length === 1
            ? `1 account holds ${sum}`
            : 'no account was found,'
      const text = `${what} instead of ${total}: ${difference}`
      return [{ invariant: name, scenario: history.scenario, key: '', text, ops: [], at: accounts.at(-1)?.at ?? 0 }]
    },
  }
}
