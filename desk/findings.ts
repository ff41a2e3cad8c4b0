import type { Database, Finding } from './desk.ts'

/** What a check's SQL gives: one row. */
interface CheckRow {
  readonly looked: string
  readonly violations: string[]
}

/** A report says that something is wrong, and gives a few examples. */
const MOST_EXAMPLES = 20

/** Asks each question, one after the other. */
export async function findingsOf(
  database: Database,
  questions: Readonly<Record<string, string>>,
): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  for (const [invariant, sql] of Object.entries(questions)) {
    const { rows } = await database.query<CheckRow>(sql)
    const { looked, violations } = rows[0] as CheckRow
    const more = violations.length - MOST_EXAMPLES
    const shown = more > 0 ? [...violations.slice(0, MOST_EXAMPLES), `and ${more} more`] : violations
    findings.push({ invariant, looked: Number(looked), violations: shown })
  }
  return findings
}
