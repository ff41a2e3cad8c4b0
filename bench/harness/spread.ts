/** What repeated measurements of one thing came to. */
export interface Spread {
  readonly median: number
  /** The middle half of the measurements lies between these two. */
  readonly low: number
  readonly high: number
  readonly samples: readonly number[]
}

export function spreadOf(samples: readonly number[]): Spread {
  return { median: median(samples), low: quantile(samples, 0.25), high: quantile(samples, 0.75), samples }
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

/** Between two values it is in proportion. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  const place = (sorted.length - 1) * share
  const below = sorted[Math.floor(place)] ?? Number.NaN
  const above = sorted[Math.ceil(place)] ?? Number.NaN
  // Not by a product with zero: what has not come counts as infinite.
  return below === above ? below : below + (above - below) * (place - Math.floor(place))
}

/** As it stands in a table: the middle half. */
export function showSpread({ low, high }: Spread): string {
  return `${show(low)} to ${show(high)}`
}

function show(value: number): string {
  return String(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(3)))
}
