import type { Goal, ResultRow } from '../../../tools/judge/report.ts'
import { SERVER_15 } from '../../../tools/server/postgres15.ts'
import type { ReportProgress } from '../attack.ts'
import { DRIVERS, openLab } from '../lab.ts'
import type { Edge } from './edge.ts'

/** Where a list of edges is attacked. */
export interface Size {
  readonly servers: readonly { readonly version: string; readonly binariesFrom?: string }[]
  readonly scaledDown: boolean
}

const CURRENT = { version: '18' }

export const FULL: Size = { servers: [{ version: '15', binariesFrom: SERVER_15 }, CURRENT], scaledDown: false }
/** Each edge with one of the drivers, in turn. */
export const SMALL: Size = { servers: [CURRENT], scaledDown: true }

/** Attacks one edge after the other, on each server with each driver. */
export async function attackAll(
  kind: string,
  list: readonly Edge[],
  { servers, scaledDown }: Size,
  reportProgress: ReportProgress,
): Promise<{ results: ResultRow[]; goals: Goal[] }> {
  const results: ResultRow[] = []
  const goals: Goal[] = []
  for (const { version, binariesFrom } of servers) {
    const lab = await openLab({}, binariesFrom)
    try {
      for (const [turn, driver] of DRIVERS.entries()) {
        for (const edge of list.filter((_, place) => !scaledDown || place % DRIVERS.length === turn)) {
          reportProgress(`${kind}: ${edge.name} on PostgreSQL ${version} with ${driver}`)
          const startedAt = performance.now()
          const found = await edge.run({ lab, driver, scaledDown, reportProgress })
          const seconds = Math.round((performance.now() - startedAt) / 100) / 10
          const held = found.filter((each) => each.holds).length
          results.push({ [kind]: edge.name, postgres: version, driver, goals: found.length, held, seconds })
          for (const each of found) goals.push({ ...each, name: `${edge.name}, ${version}, ${driver}: ${each.name}` })
        }
      }
    } finally {
      await lab.close()
    }
  }
  return { results, goals }
}
