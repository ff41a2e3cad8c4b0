import { eq } from 'drizzle-orm'
import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { drizzle } from 'pg-lockstep/drizzle'

const counters = pgTable('orm_counters', { name: text('name').primaryKey(), value: integer('value').notNull() })
const schema = { counters }
const pool = new pg.Pool()
const lockstep = new Lockstep(pool)

async function increment() {
  await lockstep.transaction({ lock: key`Counter:${'c'}`, isolation: 'serializable' }, async (tx) => {
    const db = drizzle(tx, { schema })
    const counter = await db.query.counters.findFirst({ where: eq(counters.name, 'c') })
    await db.transaction((part) =>
      part
        .update(counters)
        .set({ value: counter.value + 1 })
        .where(eq(counters.name, 'c')),
    )
  })
}

await Promise.all(Array.from({ length: 10 }, increment))
await pool.end()
