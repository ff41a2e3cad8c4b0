import type { Checker } from '../history.ts'
import { EFFECT, foundThings, foundUnder } from './foundKeys.ts'
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

/** Each account holds what it began with, and what the transfers that stand there moved to it and from it: `effect:A > B`, with the amount. */
export function explainedBalances(initial: number): Checker {
  const name = 'explained balances'
  return {
    name,
    promise: 'The balance of an account is what its recorded transfers make it, no more and no less.',
    check(history) {
      const moved = new Map<string, number>()
      for (const { entry, rest } of foundUnder(history, EFFECT)) {
        const [source, target] = rest.split(' > ')
        if (source === undefined || target === undefined) continue
        moved.set(source, (moved.get(source) ?? 0) - numberOf(entry))
        moved.set(target, (moved.get(target) ?? 0) + numberOf(entry))
      }
      return foundThings(history).flatMap((account) => {
        const { key, at } = account
        const [holds, should] = [numberOf(account), initial + (moved.get(key) ?? 0)]
        if (holds === should) return []
        const text = `${key} holds ${holds}, and its transfers make it ${should}`
        return [{ invariant: name, scenario: history.scenario, key, text, ops: [], at }]
      })
    },
  }
}
