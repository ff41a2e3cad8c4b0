import { spawn } from 'node:child_process'
import { once } from 'node:events'
import pg from 'pg'
import postgres from 'postgres'
import * as vitest from 'vitest'
import { describe, expect, inject, test } from 'vitest'
import { failureOf, retriesDuring } from '../../tools/server/testing/workbench.ts'
import { key, type Transaction } from '../index.ts'
import { testDatabase } from './index.ts'

const POOLS = {
  pg: (url: string) => new pg.Pool({ connectionString: url, max: 4 }),
  'postgres.js': (url: string) => postgres(url, { max: 4, onnotice: () => undefined, backoff: () => 0.005 }),
} as const

const db = testDatabase(vitest, {
  url: inject('adminUrl'),
  per: 'file',
  pool: POOLS.pg,
  prepare: (pool) => pool.query('CREATE TABLE orders (id text PRIMARY KEY)'),
})
vitest.afterEach(() => db.pool.query('TRUNCATE orders'))

const write = (tx: Transaction, id: string): Promise<unknown> => tx.query('INSERT INTO orders VALUES ($1)', [id])
const orders = async (): Promise<string[]> =>
  (await db.pool.query<{ id: string }>('SELECT id FROM orders ORDER BY id')).rows.map(({ id }) => id)

describe.each(Object.keys(POOLS) as (keyof typeof POOLS)[])('with %s', (driver) => {
  /** A Lockstep of this driver, through the proxy. It has made its first call: that one tries the locks. */
  const client = async (): Promise<(typeof db)['lockstep']> => {
    if (driver === 'pg') return db.lockstep
    const sql = POOLS['postgres.js'](db.url)
    const { Lockstep } = await import('../index.ts')
    const lockstep = new Lockstep(sql)
    db.after(async () => {
      await lockstep.close()
      await sql.end({ timeout: 0.1 })
    })
    return lockstep as unknown as (typeof db)['lockstep']
  }

  test.each(['read committed', 'serializable'] as const)(
    'conflictOnce() has the function of a %s transaction run again',
    async (isolation) => {
      const lockstep = await client()
      const strike = db.conflictOnce()
      let runs = 0
      const { reasons } = await retriesDuring(() =>
        lockstep.transaction({ lock: key`Order:1`, isolation }, async (tx) => {
          runs++
          await write(tx, 'a')
        }),
      )
      await strike.struck
      expect([runs, reasons]).toEqual([2, ['40001']])
      expect(await orders()).toEqual(['a'])
      // Once.
      await lockstep.transaction({}, (tx) => write(tx, 'b'))
      expect(runs).toBe(2)
    },
  )

  test('conflictOnce() strikes a transaction with events, and the transaction that has sent the statement', async () => {
    const lockstep = await client()
    const strike = db.conflictOnce({ statement: 'INSERT INTO orders' })
    let runs = 0
    await lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
    expect(strike.done).toBe(false)
    await lockstep.transaction({}, async (tx) => {
      runs++
      await write(tx, 'a')
      await tx.enqueue({ topic: 'orders', key: 'a', payload: { runs } })
    })
    expect(runs).toBe(2)
    expect((await db.drain()).map(({ payload }) => payload)).toEqual([{ runs: 2 }])
  })

  test('loseCommit() commits, and Lockstep finds out without a second run', async () => {
    const lockstep = await client()
    const strike = db.loseCommit()
    let runs = 0
    await lockstep.transaction({ lock: key`Order:1` }, async (tx) => {
      runs++
      await write(tx, 'a')
    })
    await strike.struck
    expect([runs, await orders()]).toEqual([1, ['a']])
  })

  test.each(['begin', 'locked', 'commit', { before: 'INTO orders' }, { after: 'INTO orders' }] as const)(
    'killAt(%j) loses the connection, and what was done is rolled back',
    async (step) => {
      const lockstep = await client()
      await lockstep.transaction({}, async () => undefined)
      const { struck } = db.killAt(step)
      const error = await failureOf(
        lockstep.transaction({ lock: key`Order:1`, retry: { attempts: 1 } }, (tx) => write(tx, 'a')),
      )
      await struck
      expect(error).toMatchObject({ cause: expect.anything() })
      expect(await orders()).toEqual([])
      // Nothing is left of its lock.
      await lockstep.transaction({ lock: key`Order:1` }, (tx) => write(tx, 'b'))
      expect(await orders()).toEqual(['b'])
    },
  )
})

/** A program without Lockstep: two statements and a COMMIT. */
const PROGRAM = `
  import pg from 'pg'
  const client = new pg.Client(process.env.DATABASE_URL)
  await client.connect()
  await client.query('BEGIN')
  await client.query("INSERT INTO orders VALUES ('child')")
  await client.query('COMMIT')
  console.log('committed')
`

test.each([
  ['commit', []],
  ['committed', ['child']],
] as const)('killAt(%j) kills a process', async (step, left) => {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', PROGRAM], {
    env: { ...process.env, DATABASE_URL: db.url },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let told = ''
  child.stdout.on('data', (chunk: Buffer) => (told += chunk.toString()))
  await db.killAt(step, { process: child }).struck
  expect(await once(child, 'exit')).toEqual([null, 'SIGKILL'])
  expect([told, await orders()]).toEqual(['', left])
})

test('refuses a step that does not exist', () => {
  expect(() => db.killAt('comit' as 'commit')).toThrow('There is no step "comit".')
  expect(() => db.killAt({} as { before: string })).toThrow('There is no step {}.')
})
