import type { Way } from './ways.ts'

/** What came of one way over all rounds. */
export interface Result {
  readonly way: Way
  /** Increments whose COMMIT the server confirmed. */
  readonly confirmed: number
  /** Increments that ended with 40001. */
  readonly failed: number
  /** What the wallets held in the end. */
  readonly balance: number
  readonly tookMs: number
}

const HEADINGS = ['', 'confirmed', 'in the wallet', 'lost', 'failed (40001)', 'a second']

/** The numbers of all races. */
export function resultTable(results: readonly Result[]): string {
  const rows = results.map((result) => [
    result.way.shortTitle,
    String(result.confirmed),
    String(result.balance),
    String(lostOf(result)),
    String(result.failed),
    String(Math.round((result.confirmed / result.tookMs) * 1000)),
  ])
  const widths = HEADINGS.map((heading, index) =>
    Math.max(heading.length, ...rows.map((row) => row[index]?.length ?? 0)),
  )
  return [HEADINGS, ...rows]
    .map((row) =>
      row
        .map((cell, index) => pad(cell, widths[index] ?? 0, index === 0))
        .join('   ')
        .trimEnd(),
    )
    .join('\n')
}

function pad(text: string, width: number, left: boolean): string {
  return left ? text.padEnd(width) : text.padStart(width)
}

/** True when what Lockstep promises came true. */
export function holds(results: readonly Result[]): boolean {
  return results.every((result) => !result.way.promised || isExact(result))
}

/** What the numbers say, in two sentences that fit these very numbers. */
export function meaning(results: readonly Result[]): string[] {
  if (!holds(results)) {
    return [
      'A promise of Lockstep was BROKEN in this run. Please report it, with the table above and the version of PostgreSQL.',
    ]
  }
  const others = results.filter(({ way }) => !way.promised)
  const lost = others.reduce((sum, result) => sum + lostOf(result), 0)
  const failed = others.reduce((sum, result) => sum + result.failed, 0)
  const troubles = [
    ...(lost > 0 ? [`${lost} increments that PostgreSQL had confirmed were overwritten`] : []),
    ...(failed > 0 ? [`${failed} failed although they held the lock, because their snapshot was older than it`] : []),
  ]
  const first =
    troubles.length > 0
      ? `Without Lockstep ${troubles.join(', and ')}.`
      : 'Without Lockstep nothing went wrong in this run, which was luck: try more --increments.'
  return [
    first,
    'With it every increment was granted its lock before it read, so every one counted and none had to be repeated.',
  ]
}

function lostOf({ confirmed, balance }: Result): number {
  return confirmed - balance
}

function isExact(result: Result): boolean {
  return lostOf(result) === 0 && result.failed === 0
}
