import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'
import { key } from '../locks/index.ts'

const CALLERS = 500
const POOL_SIZE = 10

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url })
const pool = new pg.Pool({ connectionString: database.url, max: POOL_SIZE })
const sql = postgres(database.url, { max: POOL_SIZE, onnotice: () => undefined })
afterAll(async () => {
  // As the advice is: names may still be on their way, and postgres.js waits for callers that have reserved a connection.
  await Promise.all(drivers.map(({ lockstep }) => lockstep.close()))
  await Promise.all([admin.end(), pool.end(), sql.end({ timeout: 5 })])
})

beforeAll(() => admin.query('CREATE TABLE counter (name text PRIMARY KEY, value int NOT NULL)'))

const drivers = [
  { driver: 'pg', lockstep: new Lockstep(pool) as unknown as Lockstep, unrelated: () => pool.query('SELECT 1') },
  { driver: 'postgres', lockstep: new Lockstep(sql) as unknown as Lockstep, unrelated: () => sql.unsafe('SELECT 1') },
]

describe.each(drivers)('$driver', ({ driver, lockstep, unrelated }) => {
  test.each(['read committed', 'serializable'] as const)(
    `serves ${CALLERS} callers of one key with a pool of ${POOL_SIZE}, %s, without keeping another query waiting`,
    async (isolation) => {
      const name = `${driver} ${isolation}`
      await admin.query('INSERT INTO counter VALUES ($1, 0)', [name])
      const [begun, answered] = [signal(), signal()]
      const callers = Array.from({ length: CALLERS }, () =>
        lockstep.transaction({ lock: key`Counter:${name}`, isolation, retry: false, waitMs: false }, async (tx) => {
          begun.give()
          // All others wait until then: if they had all connections, the other query would never be answered.
          await answered.given
          const { rows } = await tx.query<{ value: number }>('SELECT value FROM counter WHERE name = $1', [name])
          await tx.query('UPDATE counter SET value = $2 WHERE name = $1', [name, (rows[0]?.value ?? 0) + 1])
        }),
      )
      await begun.given
      await unrelated()
      answered.give()
      await Promise.all(callers)
      const { rows } = await admin.query('SELECT value FROM counter WHERE name = $1', [name])
      expect(rows).toEqual([{ value: CALLERS }])
    },
  )

  test('admits many shared callers together', async () => {
    let inside = 0
    let most = 0
    const readers = Array.from({ length: 50 }, () =>
      lockstep.transaction({ lockShared: key`Config:${driver}` }, async (tx) => {
        most = Math.max(most, ++inside)
        await tx.query('SELECT 1')
        inside--
      }),
    )
    await Promise.all(readers)
    expect(most).toBeGreaterThan(1)
  })

  test('limits many callers on many keys by the pool only', async () => {
    const callers = Array.from({ length: 200 }, (_, each) =>
      lockstep.transaction({ lock: key`Own:${driver}:${each}` }, (tx) => tx.query('SELECT 1')),
    )
    expect(await Promise.all(callers)).toHaveLength(200)
  })
})
