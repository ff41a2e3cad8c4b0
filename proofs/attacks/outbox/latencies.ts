/** How long events took from the answer to their COMMIT to their reader, by the period in which they were committed. */
export class Latencies {
  readonly #committed = new Map<string, { at: number; period: string }>()
  readonly #arrived = new Map<string, number>()
  readonly #byPeriod = new Map<string, number[]>()

  committed(mark: string, at: number, period: string): void {
    this.#committed.set(mark, { at, period })
    this.#match(mark)
  }

  /** Only the first time counts. */
  arrived(mark: string, at: number): void {
    if (this.#arrived.has(mark)) return
    this.#arrived.set(mark, at)
    this.#match(mark)
  }

  /** An event can be there before the answer to its COMMIT is. */
  #match(mark: string): void {
    const commit = this.#committed.get(mark)
    const arrivedAt = this.#arrived.get(mark)
    if (commit === undefined || arrivedAt === undefined) return
    const list = this.#byPeriod.get(commit.period) ?? []
    this.#byPeriod.set(commit.period, list)
    list.push(Math.max(0, arrivedAt - commit.at))
  }

  /** When an event was there for the first time. */
  arrivalOf(mark: string): number | undefined {
    return this.#arrived.get(mark)
  }

  of(period: string): { events: number; p50: number; p99: number; longest: number } {
    const sorted = (this.#byPeriod.get(period) ?? []).toSorted((a, b) => a - b)
    const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
    return { events: sorted.length, p50: at(0.5), p99: at(0.99), longest: sorted.at(-1) ?? 0 }
  }
}
