import { formatTable } from '../judge/report.ts'
import type { CellResult } from './cell.ts'

export function cellText({ passed, tests, skipped, seconds }: CellResult): string {
  if (!passed) return 'FAIL'
  // Skipped tests are named: a cell that skips is not as green as one that does not.
  return `pass ${tests} tests${skipped > 0 ? `, ${skipped} skipped,` : ''} ${seconds} s`
}

/** Rows are PostgreSQL releases, columns runtimes. */
export function plainTable(results: readonly CellResult[]): string {
  const [header = [], ...rows] = grid(results)
  return formatTable(rows.map((row) => Object.fromEntries(row.map((text, column) => [header[column] ?? '', text]))))
}

export function markdownTable(results: readonly CellResult[]): string {
  const [header = [], ...rows] = grid(results)
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n')
}

function grid(results: readonly CellResult[]): string[][] {
  const runtimes = [...new Set(results.map(({ runtime }) => runtime))]
  const servers = [...new Set(results.map(({ postgres }) => postgres))]
  return [
    ['', ...runtimes],
    ...servers.map((postgres) => [
      `PostgreSQL ${postgres}`,
      ...runtimes.map((runtime) => {
        const result = results.find((each) => each.runtime === runtime && each.postgres === postgres)
        return result === undefined ? '' : cellText(result)
      }),
    ]),
  ]
}
