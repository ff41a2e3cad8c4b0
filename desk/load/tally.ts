/** What was counted of one system's requests. */
export class Tally {
  requests = 0
  acknowledged = 0
  refused = 0
  unknown = 0
  /** Requests that had to be sent more than once. */
  retried = 0
}

/** How long things took, in milliseconds. */
export class Durations {
  readonly #values: number[] = []

  add(ms: number): void {
    this.#values.push(ms)
  }

  get count(): number {
    return this.#values.length
  }

  /** The value that this share of all are not above; 0 where there are none. */
  percentile(share: number): number {
    const sorted = this.#values.toSorted((a, b) => a - b)
    return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0
  }
}
