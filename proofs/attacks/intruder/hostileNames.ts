import pg from 'pg'
import { InvalidOptionError, key } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import type { Arena, Edge } from '../edges/edge.ts'
import {
  CREATE_HITS,
  DROP_HITS,
  dropNamed,
  HITS,
  hostileNames as hostile,
  naiveScripts,
  OID_OF_HITS,
} from './hostileNames.sql.ts'

/**
 * Schemas whose names are SQL. Each is refused before anything is sent, or is a schema like every other: it is migrated, locked and
 * enqueued in, and nothing of its name has run. The control puts the names into the same functions with their quotes doubled and
 * nothing else.
 */
export const hostileNames: Edge = {
  name: 'hostile-names',
  async run(arena) {
    const { admin } = arena.lab
    await admin.query(CREATE_HITS)
    const { rows } = await admin.query<{ oid: string }>(OID_OF_HITS)
    const names = hostile(rows[0]?.oid ?? '')
    try {
      let broken = 0
      for (const name of names) broken += (await useSchema(arena, name)) ? 0 : 1
      const ours = await hits(arena)
      for (const name of names) {
        for (const script of naiveScripts(name)) await admin.query(script).catch(() => undefined)
      }
      const goals: Goal[] = [
        goal('names that are neither refused nor work', broken, '=', 0),
        goal('names that ran as SQL', ours, '=', 0),
        goal('control, names put into the functions as they are: ran as SQL', (await hits(arena)) - ours, '>=', 1),
      ]
      return goals
    } finally {
      await admin.query(DROP_HITS)
    }
  },
}

/** True where the name was refused, or a schema of that name does its work. */
async function useSchema({ lab, driver, reportProgress }: Arena, schema: string): Promise<boolean> {
  let client
  try {
    client = lab.client(driver, lab.url('direct'), { schema })
  } catch (error) {
    return error instanceof InvalidOptionError
  }
  try {
    const { lockstep } = client
    await lockstep.migrate()
    await lockstep.transaction({ lock: key`Name:${1}`, isolation: 'serializable' }, async () => undefined)
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'names', key: 'a', payload: 1 }))
    await (await lockstep.leases.acquire(key`Name:${2}`, { ttlMs: 5000 })).release()
    await lockstep.outbox.status()
    return (await lockstep.doctor({ trial: false })).every(({ level, name }) => name !== 'schema' || level === 'ok')
  } catch (error) {
    reportProgress(`intruder: ${schema}: ${String(error)}`)
    return false
  } finally {
    await client.close()
    await lab.admin.query(dropNamed(pg.escapeIdentifier(schema)))
  }
}

async function hits({ lab }: Arena): Promise<number> {
  const { rows } = await lab.admin.query<{ hits: number }>(HITS)
  return rows[0]?.hits ?? 0
}
