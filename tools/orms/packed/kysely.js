import pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { kysely } from 'pg-lockstep/kysely'

const pool = new pg.Pool()
const lockstep = new Lockstep(pool)

async function increment() {
  await lockstep.transaction({ lock: key`Counter:${'c'}`, isolation: 'serializable' }, async (tx) => {
    const db = kysely(tx)
    const counter = await db.selectFrom('orm_counters').select('value').where('name', '=', 'c').executeTakeFirst()
    await db.transaction().execute((part) =>
      part
        .updateTable('orm_counters')
        .set({ value: counter.value + 1 })
        .where('name', '=', 'c')
        .execute(),
    )
  })
}

await Promise.all(Array.from({ length: 10 }, increment))
await pool.end()
