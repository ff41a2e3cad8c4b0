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

  tryTake(): boolean {
    if (this.#taken >= this.#places) return false
    this.#taken++
    return true
  }

  give(): void {
    this.#taken--
  }
}
