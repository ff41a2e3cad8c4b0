import type { Goal, ResultRow } from '../../tools/judge/report.ts'
import { SERVER_15 } from '../../tools/server/postgres15.ts'
import { attack } from './attack.ts'
import { edgeList } from './edges/index.ts'
import { DRIVERS, openLab } from './lab.ts'

interface Server {
  readonly version: string
  /** The npm package of its binaries; undefined: the one that all tests run on. */
  readonly binariesFrom: string | undefined
}

interface Size {
  readonly servers: readonly Server[]
  readonly scaledDown: boolean
}

const CURRENT: Server = { version: '18', binariesFrom: undefined }

/**
 * The edges: an ORM that sends COMMIT, a job queue shared by requests, a starved pool, connects that fail, a silent network, a lock that
 * does nothing. At each one Lockstep keeps its promise or refuses; a naive control beside it shows that the fault was there.
 */
export const edges = attack<Size>({
  name: 'edges',
  about: 'ORMs, job queues, starved pools, silent networks and engines without locks: each promise is kept or refused',
  full: { servers: [{ version: '15', binariesFrom: SERVER_15 }, CURRENT], scaledDown: false },
  small: { servers: [CURRENT], scaledDown: true },
  async run({ servers, scaledDown }, tell) {
    const results: ResultRow[] = []
    const goals: Goal[] = []
    for (const { version, binariesFrom } of servers) {
      const lab = await openLab({}, binariesFrom)
      try {
        for (const driver of DRIVERS) {
          for (const edge of edgeList) {
            tell(`edges: ${edge.name} on PostgreSQL ${version} with ${driver}`)
            const startedAt = performance.now()
            const found = await edge.run({ lab, driver, scaledDown, tell })
            const seconds = Math.round((performance.now() - startedAt) / 100) / 10
            const held = found.filter((each) => each.holds).length
            results.push({ edge: edge.name, postgres: version, driver, goals: found.length, held, seconds })
            for (const each of found) goals.push({ ...each, name: `${edge.name}, ${version}, ${driver}: ${each.name}` })
          }
        }
      } finally {
        await lab.close()
      }
    }
    return { results, goals }
  },
})
