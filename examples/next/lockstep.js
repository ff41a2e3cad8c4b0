import pg from 'pg'
import { Lockstep } from 'pg-lockstep'

function open() {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 8 })
  // A connection that is lost while it is idle is replaced by the next that is needed.
  pool.on('error', () => undefined)
  return new Lockstep(pool)
}

// One for the process. Next.js evaluates this file once for each of its bundles, and in development again after each change.
export const lockstep = (globalThis.exampleLockstep ??= open())
