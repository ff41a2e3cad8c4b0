import pg from 'pg'
import { SchemaNotOwnedError } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import type { Arena, Edge } from '../edges/edge.ts'
import {
  CREATE_MALLORY,
  DROP_MALLORY,
  dropPlanted,
  IS_SUPERUSER,
  MALLORY,
  naiveMigration,
  NO_SUPERUSER,
  ownSchema,
  PLANTS,
} from './plantedSchema.sql.ts'

const SCHEMA = 'planted'

/**
 * A role that can create schemas makes one with the name that Lockstep will use, fills it with code, and waits for a superuser to migrate.
 * Every such schema is refused, and none of the code has run. The control migrates as one does that trusts what is there.
 */
export const plantedSchema: Edge = {
  name: 'planted-schema',
  async run(arena) {
    const { admin } = arena.lab
    await admin.query(CREATE_MALLORY)
    try {
      const goals: Goal[] = []
      for (const what of Object.keys(PLANTS)) goals.push(...(await attackWith(arena, what)))
      return [...goals, await naive(arena)]
    } finally {
      await admin.query(dropPlanted(SCHEMA))
      await admin.query(DROP_MALLORY)
    }
  },
}

async function attackWith(arena: Arena, what: string): Promise<Goal[]> {
  const { lab, driver } = arena
  await plant(arena, what)
  const client = lab.client(driver, lab.url('direct'), { schema: SCHEMA })
  const outcome: unknown = await client.lockstep.migrate().catch((error: unknown) => error)
  await client.close()
  return [
    goal(`${what}: refused`, outcome instanceof SchemaNotOwnedError ? 1 : 0, '=', 1),
    goal(`${what}: its author is a superuser`, await becameSuperuser(arena), '=', 0),
  ]
}

async function naive(arena: Arena): Promise<Goal> {
  let fell = 0
  for (const what of Object.keys(PLANTS)) {
    await plant(arena, what)
    await arena.lab.admin.query(naiveMigration(SCHEMA)).catch(() => undefined)
    fell += await becameSuperuser(arena)
  }
  return goal('control, a migration that trusts the schema: its author became a superuser', fell, '>=', 1)
}

async function plant({ lab }: Arena, what: string): Promise<void> {
  const planted = PLANTS[what]
  if (planted === undefined) throw new Error(`nothing is planted by the name of ${what}`)
  await lab.admin.query(dropPlanted(SCHEMA))
  if (planted.owned === true) await lab.admin.query(ownSchema(SCHEMA))
  const url = new URL(lab.url('direct'))
  url.username = MALLORY
  const mallory = new pg.Client({ connectionString: url.href })
  await mallory.connect()
  try {
    await mallory.query(planted.plant(SCHEMA))
  } finally {
    await mallory.end()
  }
}

async function becameSuperuser({ lab }: Arena): Promise<number> {
  const { rows } = await lab.admin.query<{ super: boolean }>(IS_SUPERUSER)
  await lab.admin.query(NO_SUPERUSER)
  return rows[0]?.super === true ? 1 : 0
}
