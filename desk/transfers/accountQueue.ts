import { setTimeout as sleep } from 'node:timers/promises'
import { ProblemError } from '../http/problem.ts'

/** So many transfers of a process can wait; one more is refused at once. */
const MOST_WAITING = 1000

/**
 * Transfers of this process that share an account, one after the other. Without it each of them waits for the account's row on a connection
 * of its own, and a burst on one account takes the whole pool: requests that have nothing to do with it wait as well. With it, one
 * connection per account and process waits for the row.
 *
 * A transfer is put behind all others of its accounts in one step, so the order of coming is one order for all accounts: no circle.
 */
export class AccountQueue {
  readonly #waitMs: number
  /** Resolves when the last one of an account, and all before it, have ended. */
  readonly #last = new Map<string, Promise<void>>()
  #waiting = 0

  constructor(waitMs: number) {
    this.#waitMs = waitMs
  }

  async run<T>(accounts: readonly string[], work: () => Promise<T>): Promise<T> {
    const ahead = accounts.flatMap((account) => this.#last.get(account) ?? [])
    if (ahead.length > 0 && this.#waiting >= MOST_WAITING) throw refused('Too many transfers wait already.')
    let end = (): void => undefined
    const worked = new Promise<void>((resolve) => (end = resolve))
    // A caller that gives up leaves those behind it waiting for those ahead.
    const ended: Promise<void> = Promise.all([...ahead, worked]).then(() => this.#forget(accounts, ended))
    for (const account of accounts) this.#last.set(account, ended)
    try {
      if (ahead.length > 0) await this.#turn(Promise.all(ahead))
      return await work()
    } finally {
      end()
    }
  }

  async #turn(free: Promise<unknown>): Promise<void> {
    this.#waiting++
    const over = new AbortController()
    const late = sleep(this.#waitMs, true, { signal: over.signal }).catch(() => false)
    try {
      const isLate = await Promise.race([free.then(() => false), late])
      if (isLate) throw refused(`Transfers of the same accounts took longer than ${this.#waitMs} ms.`)
    } finally {
      over.abort()
      this.#waiting--
    }
  }

  #forget(accounts: readonly string[], ended: Promise<void>): void {
    for (const account of accounts) if (this.#last.get(account) === ended) this.#last.delete(account)
  }
}

function refused(why: string): ProblemError {
  return new ProblemError('unavailable', `${why} Nothing was done.`, { retryAfterSeconds: 1 })
}
