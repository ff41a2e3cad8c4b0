// A user's first file. Compiled against the packed package, then run: nothing listens there, so it must not connect
// before it is asked to, and must close cleanly.
import pg from 'pg'
import { Lockstep, key } from 'pg-lockstep'

const pool = new pg.Pool({ connectionString: 'postgres://127.0.0.1:1/x' })
const lockstep = new Lockstep(pool)

export async function transfer(from: string, to: string): Promise<void> {
  await lockstep.transaction({ lock: [key`Account:${from}`, key`Account:${to}`] }, async (tx) => {
    await tx.query('select 1')
  })
}

export async function rename(id: string): Promise<void> {
  await lockstep.transaction({ lock: key`Account:${id}` }, async (tx) => {
    await tx.query('select $1::text', [id])
  })
}

await lockstep.close()
await pool.end()
