import pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import type { System } from './desk.ts'
import { CREATE_SCHEMA } from './desk.sql.ts'

/** The tables of all systems, made by one process, also where two desks begin at once on one database. */
export async function prepare(url: string, systems: readonly System[]): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, application_name: 'lockstep-desk', max: 2 })
  pool.on('error', () => {})
  const lockstep = new Lockstep(pool)
  try {
    await lockstep.migrate()
    await lockstep.transaction({ lock: key`Desk:schema` }, async (tx) => {
      await tx.client.query(CREATE_SCHEMA)
      for (const { schema } of systems) await tx.client.query(schema)
    })
  } finally {
    await lockstep.close()
    await pool.end()
  }
}
