/** Two Locksteps on one pool share its places. */
const placesOfPool = new WeakMap<object, WaitPlaces>()

/**
 * How many connections of a pool may wait at the server at once. The rest of the pool stays free for work: for those that hold
 * locks and for queries that want none. A caller that finds no place asks again after a moment instead of waiting at the server.
 */
export class WaitPlaces {
  readonly #places: number
  #taken = 0

  constructor(poolSize: number) {
    this.#places = Math.min(Math.ceil(poolSize / 2), poolSize - 1)
  }

  static of(pool: object, poolSize: number): WaitPlaces {
    let places = placesOfPool.get(pool)
    if (places === undefined) placesOfPool.set(pool, (places = new WaitPlaces(poolSize)))
    return places
  }

  tryTake(): boolean {
    if (this.#taken >= this.#places) return false
    this.#taken++
    return true
  }

  give(): void {
    this.#taken--
  }
}
