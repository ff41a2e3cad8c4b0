import { median, type Spread, spreadOf } from './harness/spread.ts'

/** Something to be timed: does its work `count` times. */
export type Contender = (count: number) => Promise<void>

/** What a comparison gives: each in microseconds for one, and the ratio of the second to the first. */
export interface Comparison {
  readonly baselineUs: number
  readonly candidateUs: number
  readonly ratio: number
  /** Of the ratios. */
  readonly spread: Spread
}

/**
 * Times two contenders in turns, so that what slows the machine down slows both. The ratio is the median over the pairs: a pause
 * of the machine spoils one pair, not the result. Many short turns therefore show more than a few long ones. Which of the two goes first
 * alternates.
 */
export async function compare(
  baseline: Contender,
  candidate: Contender,
  pairs: number,
  count: number,
): Promise<Comparison> {
  await baseline(count)
  await candidate(count)
  const rounds: { baselineUs: number; candidateUs: number }[] = []
  for (let pair = 0; pair < pairs; pair++) {
    const firstIsBaseline = pair % 2 === 0
    const first = await time(firstIsBaseline ? baseline : candidate, count)
    const second = await time(firstIsBaseline ? candidate : baseline, count)
    rounds.push(
      firstIsBaseline ? { baselineUs: first, candidateUs: second } : { baselineUs: second, candidateUs: first },
    )
  }
  const spread = spreadOf(rounds.map((round) => round.candidateUs / round.baselineUs))
  return {
    baselineUs: median(rounds.map((round) => round.baselineUs)),
    candidateUs: median(rounds.map((round) => round.candidateUs)),
    ratio: spread.median,
    spread,
  }
}

async function time(contender: Contender, count: number): Promise<number> {
  const startedAt = performance.now()
  await contender(count)
  return ((performance.now() - startedAt) / count) * 1000
}
