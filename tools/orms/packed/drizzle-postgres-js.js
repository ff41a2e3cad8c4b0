import { eq } from 'drizzle-orm'
import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import { key, Lockstep } from 'pg-lockstep'
import { drizzle } from 'pg-lockstep/drizzle-postgres-js'
import postgres from 'postgres'

const counters = pgTable('orm_counters', { name: text('name').primaryKey(), value: integer('value').notNull() })
const schema = { counters }
const sql = postgres()
const lockstep = new Lockstep(sql)

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
await sql.end()
