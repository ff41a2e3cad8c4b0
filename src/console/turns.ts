/** Searches that wait for their turn; more are refused. */
const MAX_WAITING = 20

/** Lets one search after the other go to the database: however many people search, one connection of the pool is enough. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve()
  #waiting = 0

  /** Undefined where too many wait already. */
  take<T>(work: () => Promise<T>): Promise<T> | undefined {
    if (this.#waiting >= MAX_WAITING) return undefined
    this.#waiting++
    const turn = this.#last.then(work).finally(() => this.#waiting--)
    this.#last = turn.catch(() => undefined)
    return turn
  }
}
