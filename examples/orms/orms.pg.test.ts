import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run as drizzle } from './drizzle.ts'
import { run as knex } from './knex.ts'
import { run as kysely } from './kysely.ts'
import { run as mikroOrm } from './mikro-orm.ts'
import { run as prisma } from './prisma.ts'
import { run as sequelize } from './sequelize.ts'
import { run as typeorm } from './typeorm.ts'

const programs = { drizzle, knex, kysely, 'mikro-orm': mikroOrm, prisma, sequelize, typeorm }

const EVENTS = `
  SELECT payload::json ->> 'amount' AS amount FROM lockstep.outbox_events
   WHERE topic = 'payments' AND key = 'alice'`

describe.each(Object.entries(programs))('payments through %s', async (name, run) => {
  const database = await testDatabase()

  test('are never more than the account has, and each has its event', async () => {
    const pool = new pg.Pool({ connectionString: database.url })
    try {
      expect(await run(pool, database.url)).toEqual({ paid: 10, refused: 5, withCoupon: 1, balance: 50 })
      const { rows } = await pool.query<{ amount: string }>(EVENTS)
      expect(rows.map(({ amount }) => Number(amount)).toSorted((a, b) => a - b)).toEqual([-50, ...Array(10).fill(10)])
    } finally {
      await pool.end()
    }
  })

  test('are in the guide as they run here', () => {
    expect(guideShows(`docs/guides/orms/${name}.md`, `examples/orms/${name}.ts`)).toBe(true)
  })
})
