// The same on the other driver: what Lockstep needs of it is a shape, so no adapter and no import of ours is in between.
import postgres from 'postgres'
import { Lockstep, key } from 'pg-lockstep'

const sql = postgres('postgres://127.0.0.1:1/x')
const lockstep = new Lockstep(sql)

export async function rename(id: string): Promise<void> {
  await lockstep.transaction({ lock: key`Account:${id}` }, async (tx) => {
    await tx.query('select $1::text', [id])
  })
}

await lockstep.close()
await sql.end()
