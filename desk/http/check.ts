import { setTimeout as sleep } from 'node:timers/promises'
import { z } from '@hono/zod-openapi'
import type { Desk, Finding, System } from '../desk.ts'
import { page, text } from './page.ts'

export const Checked = z
  .object({
    holds: z.boolean(),
    /** How often the desk looked until every invariant had held once. */
    looks: z.int(),
    at: z.string(),
    systems: z.array(
      z.object({
        system: z.string(),
        invariants: z.array(
          z.object({ invariant: z.string(), looked: z.int(), holds: z.boolean(), violations: z.array(z.string()) }),
        ),
      }),
    ),
  })
  .openapi('Checked')
export type Checked = z.infer<typeof Checked>

/** Longer than a signal is in progress at an exchange that answers. */
const MOST_LOOKS = 12
const PAUSE_MS = 1_000

/**
 * All invariants of all systems, now. Invariants are about a desk at rest: while requests run, an event is not booked yet and a position is half
 * open. So what does not hold is looked at again, and only what was found every time is a violation. Each look is one snapshot.
 */
export class Check {
  readonly #desk: Desk
  readonly #systems: readonly System[]
  readonly #pauseMs: number
  #underWay: Promise<Checked> | undefined

  constructor(desk: Desk, systems: readonly System[], pauseMs = PAUSE_MS) {
    this.#desk = desk
    this.#systems = systems
    this.#pauseMs = pauseMs
  }

  /** Callers that come meanwhile get the same answer: it reads whole tables. */
  now(): Promise<Checked> {
    this.#underWay ??= this.#look().finally(() => (this.#underWay = undefined))
    return this.#underWay
  }

  async #look(): Promise<Checked> {
    let found = await this.#snapshot()
    let looks = 1
    for (; looks < MOST_LOOKS && found.some(({ findings }) => findings.some(isViolated)); looks++) {
      await sleep(this.#pauseMs)
      found = persisting(found, await this.#snapshot())
    }
    const systems = found.map(({ system, findings }) => ({
      system,
      invariants: findings.map((finding) => ({
        ...finding,
        holds: !isViolated(finding),
        violations: [...finding.violations],
      })),
    }))
    const holds = systems.every(({ invariants }) => invariants.every((each) => each.holds))
    return { holds, looks, at: new Date().toISOString(), systems }
  }

  #snapshot(): Promise<readonly Found[]> {
    return this.#desk.lockstep.transaction({ isolation: 'repeatable read' }, async ({ client }) => {
      const found: Found[] = []
      for (const system of this.#systems) found.push({ system: system.name, findings: await system.check(client) })
      return found
    })
  }
}

interface Found {
  readonly system: string
  readonly findings: readonly Finding[]
}

const isViolated = ({ violations }: Finding): boolean => violations.length > 0

function persisting(before: readonly Found[], now: readonly Found[]): readonly Found[] {
  const known = new Set(
    before.flatMap(({ findings }) =>
      findings.flatMap(({ invariant, violations }) => violations.map((line) => `${invariant}: ${line}`)),
    ),
  )
  return now.map(({ system, findings }) => ({
    system,
    findings: findings.map((finding) => ({
      ...finding,
      violations: finding.violations.filter((line) => known.has(`${finding.invariant}: ${line}`)),
    })),
  }))
}

/** The same for people. */
export function checkPage({ holds, looks, at, systems }: Checked): string {
  const count = systems.reduce((sum, { invariants }) => sum + invariants.length, 0)
  const tables = systems.map(({ system, invariants }) => {
    const rows = invariants.map(
      (each) =>
        `<tr><td>${each.holds ? 'holds' : '<b>violated</b>'}</td><td>${text(each.invariant)}${each.violations
          .map((line) => `<br>${text(line)}`)
          .join('')}</td><td>${each.looked}</td></tr>`,
    )
    return `<h2>${text(system)}</h2><table><thead><tr><th></th><th>invariant</th><th>looked at</th></tr></thead>
<tbody>${rows.join('')}</tbody></table>`
  })
  return page(
    'Check',
    `<h1>${holds ? `All ${count} invariants hold` : 'Not all invariants hold'}</h1>
<p><time>${text(at)}</time>, after ${looks === 1 ? 'one look' : `${looks} looks`}. Reload to check again.</p>
${tables.join('\n')}
<p><a href="/">The desk</a></p>`,
  )
}
