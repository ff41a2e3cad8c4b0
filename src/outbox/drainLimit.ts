/** How much a drain may still do, and what it has done. One for all its shards. */
export class DrainLimit {
  readonly #endsAt: number
  #eventsLeft: number
  #read = 0
  #delivered = 0

  constructor(maxMs: number, maxEvents: number) {
    this.#endsAt = performance.now() + maxMs
    this.#eventsLeft = maxEvents
  }

  get msLeft(): number {
    return Math.max(0, this.#endsAt - performance.now())
  }

  get eventsLeft(): number {
    return this.#eventsLeft
  }

  /** Whether no further event may be sent. */
  get spent(): boolean {
    return this.#eventsLeft === 0
  }

  /** How many events its shards have got. */
  get read(): number {
    return this.#read
  }

  get delivered(): number {
    return this.#delivered
  }

  /** The first of these, as many as may still be sent; from here on they count. */
  cut<Event>(events: readonly Event[]): readonly Event[] {
    const cut = events.length <= this.#eventsLeft ? events : events.slice(0, this.#eventsLeft)
    this.#eventsLeft -= cut.length
    this.#read += cut.length
    return cut
  }

  confirmed(events: number): void {
    this.#delivered += events
  }
}
