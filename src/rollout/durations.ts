/** The last durations of calls, at most as many as it was made for. */
export class Durations {
  readonly #values: Float64Array
  #count = 0

  constructor(most: number) {
    this.#values = new Float64Array(most)
  }

  /** How many it has seen. */
  get count(): number {
    return this.#count
  }

  add(ms: number): void {
    this.#values[this.#count++ % this.#values.length] = ms
  }

  /** Their mean, and the variance of that mean: how far it can be off by chance. */
  summary(): { readonly mean: number; readonly variance: number } {
    const kept = this.#values.subarray(0, Math.min(this.#count, this.#values.length))
    const mean = kept.reduce((sum, value) => sum + value, 0) / kept.length
    const squares = kept.reduce((sum, value) => sum + (value - mean) ** 2, 0)
    return { mean, variance: squares / Math.max(1, kept.length - 1) / kept.length }
  }
}

/** A difference of this many standard errors is not random, even if it is tested repeatedly. */
const CERTAIN = 4

/**
 * By how many percent calls have become slower, where it is more than the bound, and by more than chance explains; undefined otherwise. The
 * means of heavy-tailed times differ by a fifth all the time: without the second condition healthy locks would be switched off.
 */
export function slowdown(baseline: Durations, now: Durations, boundPercent: number): number | undefined {
  const [before, after] = [baseline.summary(), now.summary()]
  const factor = 1 + boundPercent / 100
  const excess = after.mean - factor * before.mean
  const error = Math.sqrt(after.variance + factor * factor * before.variance)
  return excess > CERTAIN * error && excess > 0 ? (after.mean / before.mean - 1) * 100 : undefined
}
