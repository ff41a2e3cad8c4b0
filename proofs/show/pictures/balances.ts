import { foundThings } from '../../checkers/foundKeys.ts'
import { numberOf } from '../../checkers/operations.ts'
import type { Entry } from '../../history.ts'
import type { Account } from '../state.ts'
import type { PictureSource } from './picture.ts'

const SAMPLES = 40

/** Balances as one statement read them. */
class Accounts {
  readonly #lowest = new Map<string, number>()
  accounts: Account[] = []

  constructor(
    readonly names: readonly string[],
    initial: number,
  ) {
    this.accounts = names.map((name) => ({ name, balance: initial, lowest: initial }))
  }

  /** An answer says what the operation left. */
  left(key: string, balance: number): void {
    const name = this.#nameOf(key)
    this.#lowest.set(name, Math.min(this.#lowest.get(name) ?? Infinity, balance))
  }

  read(entries: readonly Entry[]): void {
    const things = foundThings({ scenario: '', form: 'naive', entries, faults: [] })
    const balances = new Map(things.map((entry) => [this.#nameOf(entry.key), numberOf(entry)]))
    for (const [name, balance] of balances) this.left(name, balance)
    this.accounts = this.names.map((name) => {
      const balance = balances.get(name) ?? 0
      return { name, balance, lowest: Math.min(balance, this.#lowest.get(name) ?? balance) }
    })
  }

  /** `account 7.2` is the third of round 7. */
  #nameOf(key: string): string {
    return this.names[Number(key.split('.').at(-1))] ?? key
  }
}

/** The total of all accounts over time, and what it must be. */
export function total(must: number, names: readonly string[]): PictureSource {
  const accounts = new Accounts(names, must / names.length)
  const totals: number[] = []
  let deadlocks = 0
  return {
    see({ what, note }) {
      if ((what === 'unknown' || what === 'failed') && note?.includes('40P01') === true) deadlocks++
    },
    sample(found) {
      accounts.read(found)
      totals.push(accounts.accounts.reduce((sum, { balance }) => sum + balance, 0))
      if (totals.length > SAMPLES) totals.shift()
    },
    picture: () => ({ kind: 'total', must, totals: [...totals], accounts: accounts.accounts, deadlocks }),
  }
}

/** Wallets, and how low each has been. */
export function wallets(initial: number, names: readonly string[]): PictureSource {
  const accounts = new Accounts(names, initial)
  return {
    see({ what, key, value }) {
      if (what === 'done' && typeof value === 'number') accounts.left(key, value)
    },
    sample: (found) => accounts.read(found),
    picture: () => ({ kind: 'wallets', wallets: accounts.accounts }),
  }
}
