import { setTimeout as delay } from 'node:timers/promises'

/** A wrong token is answered after this time, and the number of waiting requests of one address is limited: at most twenty guesses a second. */
const WRONG_ANSWER_MS = 500
const MAX_WRONG = 10

/**
 * Wrong tokens, limited by the address that sends them, so that guessing from one address does not lock out another. The number of
 * addresses is bounded by the requests that are open: each entry is there as long as one of them waits for its answer.
 */
export class LoginAttempts {
  readonly #wrong = new Map<string, number>()

  /** Whether an address has so many wrong tokens pending that the next one is refused unread. */
  isFull(address: string | undefined): boolean {
    return (this.#wrong.get(networkOf(address)) ?? 0) >= MAX_WRONG
  }

  /** Comes back when a wrong token may be answered. */
  async wrong(address: string | undefined): Promise<void> {
    const network = networkOf(address)
    this.#wrong.set(network, (this.#wrong.get(network) ?? 0) + 1)
    await delay(WRONG_ANSWER_MS, undefined, { ref: false })
    const left = (this.#wrong.get(network) ?? 1) - 1
    if (left > 0) this.#wrong.set(network, left)
    else this.#wrong.delete(network)
  }
}

/** An IPv4 address, or the /64 of an IPv6 one: a network of that size has one user. One that is not known is shared by all such. */
export function networkOf(address: string | undefined): string {
  if (address === undefined || address === '') return 'unknown'
  const plain = address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '')
  if (!plain.includes(':')) return plain
  const [left = '', right] = (plain.split('%', 1)[0] ?? '').split('::', 2)
  const head = left === '' ? [] : left.split(':')
  const tail = right === undefined || right === '' ? [] : right.split(':')
  const gap = right === undefined ? 0 : Math.max(0, 8 - head.length - tail.length)
  const groups = [...head, ...Array.from({ length: gap }, () => '0'), ...tail]
  return groups
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ''))
    .join(':')
}
