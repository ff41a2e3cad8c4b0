import pg from 'pg'
import { key } from 'pg-lockstep'
import { testDatabase } from 'pg-lockstep/testing'
import * as vitest from 'vitest'
import { beforeEach, expect, test } from 'vitest'
import { pay } from '../orders.ts'

// globalSetup.ts has made the template, with the tables, once for all files.
const template = process.env['TEST_TEMPLATE'] ?? ''
const db = testDatabase(vitest, { pool: (url) => new pg.Pool({ connectionString: url }), template })

beforeEach(() => db.pool.query(`INSERT INTO orders VALUES ('1')`))

async function payments(): Promise<number> {
  const { rows } = await db.pool.query<{ count: number }>('SELECT count(*)::int AS count FROM payments')
  return rows[0]?.count ?? 0
}

test('an order is paid once, however many try', async () => {
  // Two processes, as far as locks are concerned.
  const processes = [db.lockstep, db.open().lockstep]
  const paid = await Promise.all(Array.from({ length: 20 }, (_, n) => pay(processes[n % 2]!, '1')))
  expect(paid.filter(Boolean)).toHaveLength(1)
  expect(await payments()).toBe(1)
})

test('a payment waits for the holder of the order', async () => {
  const held = await db.hold(key`Order:${'1'}`)
  const paying = pay(db.lockstep, '1')
  await held.waiters(1)
  expect(await payments()).toBe(0)
  await held.release()
  expect(await paying).toBe(true)
})

test('a conflict runs the payment again, and it is paid once', async () => {
  const conflict = db.conflictOnce()
  expect(await pay(db.lockstep, '1')).toBe(true)
  await conflict.struck
  expect(await payments()).toBe(1)
})
