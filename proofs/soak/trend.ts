/**
 * Whether something grows. The samples after the warm-up are put together in blocks of consecutive ones, of which each gives its median: what
 * a fault leaves in one sample does not count, and blocks depend on each other less than samples do. The slope is the median of the slopes of
 * all pairs of blocks (Theil and Sen). Its 95 % interval is Sen's, from the variance of the Mann-Kendall statistic with ties. Neither
 * assumes a distribution.
 *
 * Growth is the slope times the length of the run. It breaks the promise when the whole interval is above the tolerance: the growth is certain. Something
 * is shown to be flat when the whole interval is below: a leak of that size is excluded. Between the two the run has shown nothing.
 */
import { evidence, type Goal, goal } from '../../tools/judge/report.ts'
import { quantile } from '../workload/latencies.ts'

export interface Point {
  /** Since the beginning of the run. */
  readonly atMs: number
  readonly value: number
}

/** How a value changed from the first sample to the last, in its own unit. */
export interface Trend {
  readonly median: number
  readonly growth: number
  /** The ends of the 95 % interval of `growth`. */
  readonly atLeast: number
  readonly atMost: number
  /** Kendall's: 1 where each block is above all before it, -1 where each is below. */
  readonly tau: number
}

const BLOCKS = 24
/** Fewer have no interval to speak of. */
export const LEAST_POINTS = 8
const Z_95 = 1.96

/** Undefined where there are too few points. */
export function trendOf(points: readonly Point[]): Trend | undefined {
  if (points.length < LEAST_POINTS) return undefined
  const blocks = blocksOf(points)
  const lengthMs = (points.at(-1) as Point).atMs - (points[0] as Point).atMs
  const slopes: number[] = []
  let rising = 0
  for (const [place, later] of blocks.entries()) {
    for (const earlier of blocks.slice(0, place)) {
      const rise = later.value - earlier.value
      rising += Math.sign(rise)
      slopes.push(rise / (later.atMs - earlier.atMs))
    }
  }
  slopes.sort((a, b) => a - b)
  const reach = Z_95 * Math.sqrt(varianceOf(blocks))
  const at = (rank: number): number => slopes[Math.max(0, Math.min(slopes.length - 1, Math.round(rank)))] as number
  return {
    median: quantile(
      blocks.map(({ value }) => value),
      0.5,
    ),
    growth: medianOf(slopes) * lengthMs,
    atLeast: at((slopes.length - reach) / 2 - 1) * lengthMs,
    atMost: at((slopes.length + reach) / 2) * lengthMs,
    tau: rising / slopes.length,
  }
}

function blocksOf(points: readonly Point[]): Point[] {
  const count = Math.min(BLOCKS, points.length)
  return Array.from({ length: count }, (_, n) => {
    const block = points.slice(Math.floor((n * points.length) / count), Math.floor(((n + 1) * points.length) / count))
    return { atMs: medianOf(block.map(({ atMs }) => atMs)), value: medianOf(block.map(({ value }) => value)) }
  })
}

/** Of the Mann-Kendall statistic, with the correction for ties. */
function varianceOf(blocks: readonly Point[]): number {
  const terms = (n: number): number => n * (n - 1) * (2 * n + 5)
  const ties = new Map<number, number>()
  for (const { value } of blocks) ties.set(value, (ties.get(value) ?? 0) + 1)
  const tied = [...ties.values()].reduce((sum, count) => sum + terms(count), 0)
  return (terms(blocks.length) - tied) / 18
}

function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  if (sorted.length % 2 === 1) return sorted[middle] as number
  return ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2
}

/** What counts as flat. */
export interface Tolerance {
  /** Of the median. */
  readonly percent: number
  /** A median below counts as this: a few handles more or less are no growth. */
  readonly least: number
}

/** Two goals: that it does not grow for certain, and that growth is excluded. `unsure`: nothing can break, because the machine itself has changed. */
export function judge(name: string, points: readonly Point[], tolerance: Tolerance, unsure = false): Goal[] {
  const trend = trendOf(points)
  const [grows, excluded] = [`${name}: growth at least, percent`, `${name}: growth at most, percent`]
  if (trend === undefined) return [evidence(`${name}: samples`, points.length, '>=', LEAST_POINTS)]
  const percentOf = (growth: number): number => (growth / Math.max(trend.median, tolerance.least)) * 100
  return [
    (unsure ? evidence : goal)(grows, percentOf(trend.atLeast), '<=', tolerance.percent),
    evidence(excluded, percentOf(trend.atMost), '<=', tolerance.percent),
  ]
}
