import { sql, TransactionRollbackError } from 'drizzle-orm'
import { describe, expect, test } from 'vitest'
import { drizzleOnPg, drizzleOnPostgresJs, schema } from '../../tools/orms/underTest/drizzle.ts'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { DriverUnsupportedError, InvalidOptionError, TransactionControlError } from '../index.ts'
import { findCause } from '../postgres/index.ts'
import * as postgresJs from './drizzle-postgres-js.ts'
import { clientOf, drizzle } from './drizzle.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, drizzleOnPg)
ormConformance(bench, drizzleOnPostgresJs)

describe('drizzle()', () => {
  test('refuses a transaction of the other driver, and names the entry point to use', async () => {
    const wrong = await failureOf(bench.open('postgres.js').lockstep.transaction({}, async (tx) => drizzle(tx)))
    expect(wrong).toBeInstanceOf(DriverUnsupportedError)
    expect(wrong).toMatchObject({ advice: expect.stringContaining('pg-lockstep/drizzle-postgres-js') as string })
    const other = await failureOf(bench.open('pg').lockstep.transaction({}, async (tx) => postgresJs.drizzle(tx)))
    expect(other).toBeInstanceOf(DriverUnsupportedError)
  })

  test('refuses a cache: what is read under a lock is read from the database', async () => {
    const cached = { schema, cache: {} } as { schema: typeof schema }
    const failed = bench.open('pg').lockstep.transaction({}, async (tx) => drizzle(tx, cached))
    expect(await failureOf(failed)).toBeInstanceOf(InvalidOptionError)
  })

  test('rolls back on rollback(), nested alone and outermost as a whole', async () => {
    const { lockstep } = bench.open('pg')
    await lockstep.transaction({}, async (tx) => {
      const db = drizzle(tx, { schema })
      await db.insert(schema.notes).values({ id: 'kept' })
      const nested = db.transaction(async (part) => {
        await part.insert(schema.notes).values({ id: 'undone' })
        part.rollback()
      })
      expect(await failureOf(nested)).toBeInstanceOf(TransactionRollbackError)
    })
    const whole = lockstep.transaction({}, async (tx) => {
      const db = drizzle(tx, { schema })
      await db.insert(schema.notes).values({ id: 'undone' })
      db.rollback()
    })
    expect(await failureOf(whole)).toBeInstanceOf(TransactionRollbackError)
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('refuses to change the isolation level, and to end the transaction', async () => {
    const isRefused = (each: unknown): boolean => each instanceof TransactionControlError
    await bench.open('pg').lockstep.transaction({}, async (tx) => {
      const db = drizzle(tx)
      const changed = await failureOf(db.setTransaction({ isolationLevel: 'serializable' }))
      expect(findCause(changed, isRefused)).toBeDefined()
      expect(findCause(await failureOf(db.execute(sql`COMMIT`)), isRefused)).toBeDefined()
    })
  })

  test('reports statements to a logger', async () => {
    const logged: string[] = []
    const logger = { logQuery: (query: string) => void logged.push(query) }
    await bench.open('pg').lockstep.transaction({}, async (tx) => drizzle(tx, { logger }).execute(sql`SELECT 1 AS one`))
    expect(logged).toEqual(['SELECT 1 AS one'])
  })
})

test('clientOf() refuses what is no transaction of Drizzle', () => {
  for (const given of [{ _: { session: {} } }, {} as { _: { session: object } }]) {
    expect(() => clientOf(given)).toThrow(DriverUnsupportedError)
    expect(() => clientOf(given)).toThrow('_.session.client')
  }
})
