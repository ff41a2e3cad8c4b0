import type { Database, Finding } from '../desk.ts'
import { QUESTIONS } from './check.sql.ts'

/** Compares the desk's tables with the exchange's, when nothing is in progress. */
export async function checkPositions(database: Database): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  for (const { invariant, looked, violations } of QUESTIONS) {
    const counted = await database.query<{ looked: string }>(looked)
    const found = await database.query<{ line: string }>(violations)
    findings.push({
      invariant,
      looked: Number(counted.rows[0]?.looked ?? 0),
      violations: found.rows.map(({ line }) => line),
    })
  }
  return findings
}
