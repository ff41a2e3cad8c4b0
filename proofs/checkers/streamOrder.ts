/** What arrived, in the order in which it arrived. */
export interface Arrival {
  readonly key: string
  readonly seq: number
  /** The event's own id: a number that comes again with another one is another event. */
  readonly uuid: string
  /** What the writer calls it. */
  readonly mark: string
}

/** What the arrivals of a run show. */
export interface OrderReport {
  readonly deliveries: number
  /** First deliveries. */
  readonly events: number
  readonly duplicates: number
  /** First deliveries that were not the next number of their stream. */
  readonly violations: number
  /** Numbers that came with two ids. */
  readonly diverged: number
  readonly examples: readonly string[]
}

const MAX_EXAMPLES = 5

/** First deliveries of each stream must be exactly 1, 2, 3, …; whatever was delivered may be delivered again, as it was. */
export class StreamOrderChecker {
  readonly #streams = new Map<string, Arrival[]>()
  readonly #early = new Map<string, Map<number, string>>()
  readonly #marks = new Set<string>()
  readonly #examples: string[] = []
  #deliveries = 0
  #duplicates = 0
  #violations = 0
  #diverged = 0

  see(arrival: Arrival): void {
    const { key, seq, uuid, mark } = arrival
    this.#deliveries++
    this.#marks.add(mark)
    let stream = this.#streams.get(key)
    if (stream === undefined) this.#streams.set(key, (stream = []))
    const known = stream[seq - 1]?.uuid ?? this.#early.get(key)?.get(seq)
    if (known !== undefined) {
      this.#duplicates++
      if (known !== uuid) this.#tell(`${key} #${seq} came with two ids`, () => this.#diverged++)
      return
    }
    if (seq === stream.length + 1) {
      stream.push(arrival)
      return
    }
    this.#tell(`${key} #${seq} came when #${stream.length + 1} was next`, () => this.#violations++)
    const early = this.#early.get(key) ?? new Map<number, string>()
    this.#early.set(key, early.set(seq, uuid))
  }

  #tell(example: string, count: () => void): void {
    count()
    if (this.#examples.length < MAX_EXAMPLES) this.#examples.push(example)
  }

  has(mark: string): boolean {
    return this.#marks.has(mark)
  }

  /** How many of the marks have not arrived. */
  missing(marks: Iterable<string>): number {
    let missing = 0
    for (const mark of marks) if (!this.#marks.has(mark)) missing++
    return missing
  }

  /** How many of the marks have arrived. */
  arrived(marks: Iterable<string>): number {
    let arrived = 0
    for (const mark of marks) if (this.#marks.has(mark)) arrived++
    return arrived
  }

  report(): OrderReport {
    return {
      deliveries: this.#deliveries,
      events: this.#deliveries - this.#duplicates,
      duplicates: this.#duplicates,
      violations: this.#violations,
      diverged: this.#diverged,
      examples: this.#examples,
    }
  }
}
