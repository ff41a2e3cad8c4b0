import type { Database, Finding, System } from '../desk.ts'
import type { Sender } from './senders/sender.ts'

/** What was found in one system. */
export interface Examined {
  readonly system: System['name']
  readonly findings: readonly Finding[]
  readonly looked: number
  readonly violations: number
}

/** Each system's own check, and what its clients remember. */
export async function examine(
  database: Database,
  systems: readonly System[],
  senders: readonly Sender[],
): Promise<Examined[]> {
  const examined: Examined[] = []
  for (const system of systems) {
    const sender = senders.find((each) => each.system === system.name)
    const findings = [...(await system.check(database)), ...((await sender?.compare(database)) ?? [])]
    examined.push({
      system: system.name,
      findings,
      looked: findings.reduce((sum, { looked }) => sum + looked, 0),
      violations: findings.reduce((sum, { violations }) => sum + violations.length, 0),
    })
  }
  return examined
}
