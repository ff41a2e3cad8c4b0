import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import type { PostgresServer } from '../../tools/server/postgres.ts'
import { quiet } from './client.ts'
import { createDatabase } from './database.sql.ts'

/** A database with Lockstep on it. */
export interface LockstepDatabase {
  readonly url: string
  readonly pool: pg.Pool
  readonly lockstep: Lockstep
  close(): Promise<void>
}

export function openDatabase(url: string, max = 20): LockstepDatabase {
  const pool = quiet(new pg.Pool({ connectionString: url, max }))
  const lockstep = new Lockstep(pool)
  const close = async (): Promise<void> => {
    await lockstep.close()
    await pool.end()
  }
  return { url, pool, lockstep, close }
}

/** A new database of a server, with nothing in it. */
export async function makeDatabase(server: PostgresServer, name: string): Promise<LockstepDatabase> {
  await onServer(server, createDatabase(name))
  return openDatabase(server.url(name))
}

/** Runs a statement on a server, in its first database. */
export async function onServer(server: PostgresServer, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: server.url() })
  await client.connect()
  try {
    await client.query(text)
  } finally {
    await client.end()
  }
}
