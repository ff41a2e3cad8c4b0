import assert from 'node:assert/strict'
import * as runner from 'node:test'
import { beforeEach, test } from 'node:test'
import pg from 'pg'
import { LeaseLostError } from 'pg-lockstep'
import { testDatabase } from 'pg-lockstep/testing'
import { createTables, pay, ship } from '../orders.ts'

const db = testDatabase(runner, { pool: (url) => new pg.Pool({ connectionString: url }), prepare: createTables })

beforeEach(async () => void (await db.pool.query(`INSERT INTO orders VALUES ('1')`)))

void test('a payment whose connection dies before COMMIT is tried again', async () => {
  const died = db.killAt('commit')
  assert.equal(await pay(db.lockstep, '1'), true)
  await died.struck
  assert.equal((await db.pool.query('SELECT FROM payments')).rowCount, 1)
})

void test('a warehouse that takes too long is aborted', async () => {
  let stopped = false
  const shipping = ship(db.lockstep, '1', async (signal) => {
    signal.addEventListener('abort', () => (stopped = true))
    await db.advanceLeases(30_000)
  })
  await assert.rejects(shipping, LeaseLostError)
  assert.equal(stopped, true)
})
