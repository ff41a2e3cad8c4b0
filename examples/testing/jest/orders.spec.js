import * as jest from '@jest/globals'
import pg from 'pg'
import { testDatabase } from 'pg-lockstep/testing'
import { createTables, pay } from '../orders.ts'

const { beforeEach, expect, test } = jest
const db = testDatabase(jest, { pool: (url) => new pg.Pool({ connectionString: url }), prepare: createTables })

beforeEach(() => db.pool.query(`INSERT INTO orders VALUES ('1'), ('2')`))

test('an order whose COMMIT is not answered is paid once', async () => {
  const lost = db.loseCommit()
  expect(await pay(db.lockstep, '1')).toBe(true)
  await lost.struck
  expect(await pay(db.lockstep, '1')).toBe(false)
})

test('every paid order has one event, in the order of the payments', async () => {
  await pay(db.lockstep, '2')
  await pay(db.lockstep, '1')
  await pay(db.lockstep, '2')
  const events = await db.drain()
  expect(events.map(({ topic, key, seq }) => `${topic}/${key}#${seq}`)).toEqual(['orders/2#1', 'orders/1#1'])
})
