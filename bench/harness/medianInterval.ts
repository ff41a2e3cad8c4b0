/** A bound on either side. */
export interface Interval {
  readonly low: number
  readonly high: number
}

const OUTSIDE = 0.025

/**
 * Where the median of what was sampled lies, with a confidence of 95 %: between two of the samples, whatever their distribution is. Each
 * sample lies below the median with a chance of one half, so how many do is binomial. Fewer than six samples cannot say it: then it is
 * from the smallest to the largest.
 */
export function medianInterval(samples: readonly number[]): Interval {
  const sorted = samples.toSorted((a, b) => a - b)
  const count = sorted.length
  let chance = 0.5 ** count
  let below = 0
  // How many can be left out at each end, while the chance that the median lies out there stays below one fortieth.
  for (let sum = chance; sum <= OUTSIDE; sum += chance) {
    below++
    chance = (chance * (count - below + 1)) / below
  }
  const left = Math.max(0, below - 1)
  return { low: sorted[left] ?? Number.NaN, high: sorted[count - 1 - left] ?? Number.NaN }
}
