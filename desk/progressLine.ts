import type { Tally } from './racers.ts'

const WIDEST_BAR = 40
/** What stands beside the bar. */
const TEXT_COLUMNS = 38

/** How far one racer is: a bar with what was confirmed and what failed. */
export function progressLine(racer: number, { confirmed, failed }: Tally, increments: number, columns: number): string {
  const width = Math.max(5, Math.min(WIDEST_BAR, columns - TEXT_COLUMNS))
  const [good, tried] = [confirmed, confirmed + failed].map((count) => Math.round((count / increments) * width)) as [
    number,
    number,
  ]
  const bar = '█'.repeat(good) + '▒'.repeat(tried - good) + '·'.repeat(width - tried)
  const failures = failed === 0 ? '' : `, ${failed} failed`
  return `   racer ${racer} ${bar} ${confirmed + failed}/${increments}${failures}`
}
