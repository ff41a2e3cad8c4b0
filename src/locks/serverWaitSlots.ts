/** Two Locksteps on one pool share its places. */
const slotsOfPool = new WeakMap<object, ServerWaitSlots>()

/**
 * How many connections of a pool may wait at the server at once. The rest of the pool stays free for work: for those that hold
 * locks and for queries that want none. A caller that finds no place asks again after a moment instead of waiting at the server.
 */
export class ServerWaitSlots {
  readonly #slots: number
  #taken = 0

  constructor(poolSize: number) {
    this.#slots = Math.min(Math.ceil(poolSize / 2), poolSize - 1)
  }

  static of(pool: object, poolSize: number): ServerWaitSlots {
    let waitSlots = slotsOfPool.get(pool)
    if (waitSlots === undefined) slotsOfPool.set(pool, (waitSlots = new ServerWaitSlots(poolSize)))
    return waitSlots
  }

  tryTake(): boolean {
    if (this.#taken >= this.#slots) return false
    this.#taken++
    return true
  }

  release(): void {
    this.#taken--
  }
}
