import { cpus, totalmem } from 'node:os'

/** A sentence that a run can show to be false. */
export interface Goal {
  readonly name: string
  readonly value: number
  /** As it is read: `= 0`, `<= 1.1`, `>= 40`. */
  readonly goal: string
  readonly holds: boolean
  /**
   * It says whether the run has shown anything: a control that was caught, faults that struck, a machine with time to spare. Where it does not hold,
   * nothing is proven, and nothing is broken either.
   */
  readonly evidence?: true
}

/** `violated`: a promise was broken. `inconclusive`: none was, and the run has not shown enough to say that they hold. */
export type Verdict = 'holds' | 'violated' | 'inconclusive'

/** What a command ends with. 2 is a wrong command line. */
export const EXIT_STATUS: Readonly<Record<Verdict, number>> = { holds: 0, violated: 1, inconclusive: 3 }

/** One row of what was measured. All rows of a report have the same columns. */
export type ResultRow = Readonly<Record<string, string | number>>

/** What a command that judges prints. */
export interface Report {
  readonly name: string
  readonly machine: string
  readonly results: readonly ResultRow[]
  readonly goals: readonly Goal[]
}

type Comparison = '=' | '<=' | '>='

/** Makes a goal from a measured value. */
export function goal(name: string, value: number, comparison: Comparison, bound: number): Goal {
  const holds = comparison === '=' ? value === bound : comparison === '<=' ? value <= bound : value >= bound
  return { name, value, goal: `${comparison} ${bound}`, holds }
}

/** The same for a goal that says whether the run has shown anything. */
export function evidence(...given: Parameters<typeof goal>): Goal {
  return { ...goal(...given), evidence: true }
}

/** A broken promise is one, however little else was shown. */
export function verdictOf(goals: readonly Goal[]): Verdict {
  const missed = goals.filter(({ holds }) => !holds)
  if (missed.length === 0) return 'holds'
  return missed.every((each) => each.evidence === true) ? 'inconclusive' : 'violated'
}

/** The machine in a few words: figures without it mean nothing. */
export function describeMachine(extra = ''): string {
  const cores = cpus()
  const memory = Math.round(totalmem() / 2 ** 30)
  const model = (cores[0]?.model ?? 'unknown processor').replaceAll(/\s+/g, ' ').trim()
  return `${cores.length} x ${model}, ${memory} GiB, ${process.platform} ${process.arch}, Node ${process.versions.node}${extra}`
}

/** Prints a table for people, or with `json` one object on the last line for programs. Gives the exit status. */
export function printReport(report: Report, json: boolean): number {
  const verdict = verdictOf(report.goals)
  if (json) {
    process.stdout.write(`${JSON.stringify(report)}\n`)
    return EXIT_STATUS[verdict]
  }
  const out = [`\n${report.name} on ${report.machine}\n`]
  if (report.results.length > 0) out.push(`${formatTable(report.results)}\n`)
  const goals = report.goals.map((each) => ({
    goal: each.name,
    value: round(each.value),
    wanted: each.goal,
    '': each.holds ? 'holds' : each.evidence === true ? 'not shown' : 'DOES NOT HOLD',
  }))
  out.push(formatTable(goals))
  if (verdict === 'inconclusive') out.push('\nInconclusive: no promise was broken, and this run has not shown enough.')
  process.stdout.write(`${out.join('\n')}\n`)
  return EXIT_STATUS[verdict]
}

/** Columns of text to the left, of numbers to the right. */
export function formatTable(rows: readonly ResultRow[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))]
  const cells = rows.map((row) => columns.map((column) => show(row[column])))
  const widths = columns.map((column, index) => Math.max(column.length, ...cells.map((row) => row[index]?.length ?? 0)))
  const numeric = columns.map((column) => rows.every((row) => typeof row[column] !== 'string'))
  const line = (texts: readonly string[]): string =>
    texts
      .map((text, index) =>
        numeric[index] === true ? text.padStart(widths[index] ?? 0) : text.padEnd(widths[index] ?? 0),
      )
      .join('  ')
      .trimEnd()
  return [line(columns), line(widths.map((width) => '-'.repeat(width))), ...cells.map(line)].join('\n')
}

function show(value: string | number | undefined): string {
  if (value === undefined) return ''
  return typeof value === 'number' ? String(round(value)) : value
}

function round(value: number): number {
  return Number.isInteger(value) ? value : Number(value.toPrecision(4))
}
