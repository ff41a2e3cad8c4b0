import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import type { PostgresServer } from '../../../tools/server/postgres.ts'
import { createDatabase } from './database.sql.ts'

/** A database of its own, migrated. Its url. */
export async function databaseOn(server: PostgresServer, name: string): Promise<string> {
  const admin = new pg.Pool({ connectionString: server.url(), max: 1 })
  await admin.query(createDatabase(name))
  await admin.end()
  const pool = new pg.Pool({ connectionString: server.url(name), max: 1 })
  await new Lockstep(pool).migrate()
  await pool.end()
  return server.url(name)
}
