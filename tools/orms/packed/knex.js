import knexFactory from 'knex'
import pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { knex } from 'pg-lockstep/knex'

const instance = knexFactory({ client: 'pg' })
const pool = new pg.Pool()
const lockstep = new Lockstep(pool)

async function increment() {
  await lockstep.transaction({ lock: key`Counter:${'c'}`, isolation: 'serializable' }, async (tx) => {
    const trx = await knex(tx, instance)
    const counter = await trx('orm_counters').where({ name: 'c' }).first()
    await trx.transaction((part) =>
      part('orm_counters')
        .where({ name: 'c' })
        .update({ value: counter.value + 1 }),
    )
  })
}

await Promise.all(Array.from({ length: 10 }, increment))
await pool.end()
