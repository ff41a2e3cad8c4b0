import type { Goal, ResultRow } from '../../tools/judge/report.ts'
import { SERVER_15 } from '../../tools/server/postgres15.ts'
import { attack } from './attack.ts'
import { intruderList } from './intruder/index.ts'
import { DRIVERS, openLab } from './lab.ts'

interface Size {
  /** The npm packages of the servers' binaries; undefined: the one that all tests run on. */
  readonly servers: readonly (string | undefined)[]
  readonly scaledDown: boolean
}

/**
 * People who should not get in: roles that try everything in the schema, a schema that was planted before the first migration, a
 * schema's name that is SQL, a session that takes Lockstep's locks. Each is refused; a control beside it shows that the fault is there
 * without the protection.
 */
export const intruder = attack<Size>({
  name: 'intruder',
  about: 'roles that try every table and function, planted schemas, hostile names and input: each is refused',
  full: { servers: [SERVER_15, undefined], scaledDown: false },
  small: { servers: [undefined], scaledDown: true },
  async run({ servers, scaledDown }, tell) {
    const results: ResultRow[] = []
    const goals: Goal[] = []
    for (const binariesFrom of servers) {
      const lab = await openLab({}, binariesFrom)
      const version = binariesFrom === undefined ? '18' : '15'
      try {
        for (const driver of DRIVERS) {
          for (const intrusion of intruderList) {
            tell(`intruder: ${intrusion.name} on PostgreSQL ${version} with ${driver}`)
            const startedAt = performance.now()
            const found = await intrusion.run({ lab, driver, scaledDown, tell })
            const seconds = Math.round((performance.now() - startedAt) / 100) / 10
            const held = found.filter((each) => each.holds).length
            results.push({ intrusion: intrusion.name, postgres: version, driver, goals: found.length, held, seconds })
            for (const each of found)
              goals.push({ ...each, name: `${intrusion.name}, ${version}, ${driver}: ${each.name}` })
          }
        }
      } finally {
        await lab.close()
      }
    }
    return { results, goals }
  },
})
