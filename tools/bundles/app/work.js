// What a user's program does with the library. Every bundler bundles it, from the packed package.
import pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { createConsole } from 'pg-lockstep/console'

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 3 })
const lockstep = new Lockstep(pool, { schema: process.env.SCHEMA })

export const site = createConsole(lockstep, { base: '/console', token: process.env.TOKEN ?? 'none at build time' })

/** Migrates, runs a transaction under a lock, examines the database, and causes an error. */
export async function work() {
  const { from, to } = await lockstep.migrate()
  const counted = await lockstep.transaction({ lock: key`Account:${7}` }, async (tx) => {
    const { rows } = await tx.query('SELECT 6 * $1::int AS product', [7])
    return rows[0].product
  })
  const findings = await lockstep.doctor()
  const { name, code } = await lockstep.transaction({ lock: '' }, async () => undefined).catch((error) => error)
  return { from, to, counted, schema: findings.find((each) => each.name === 'schema')?.level, error: { name, code } }
}
