import pg from 'pg'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { clientOf, noteBy, ofTransaction } from '../../tools/server/testing/clientOf.ts'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import { Lockstep, type Transaction, TransactionRolledBackError } from '../index.ts'

const bench = await testBench()

/** A Lockstep whose driver gives up on a statement by itself: by its clock, or because it cannot read the answer. */
function impatient(): Lockstep {
  const pool = new pg.Pool({ connectionString: bench.url, max: 2 })
  const lockstep = new Lockstep(pool, { silenceMs: 5000 })
  bench.cleanUp(() => lockstep.close().then(() => pool.end()))
  return lockstep
}

/** Writes, and takes longer than the client waits: it is executed all the same. */
const SLOW = `INSERT INTO notes SELECT 'slow' FROM pg_sleep(0.3)`

const slowly = (client: unknown): Promise<unknown> =>
  (client as pg.PoolClient).query({ text: SLOW, query_timeout: 20 } as pg.QueryConfig)

const byCallback = (client: unknown): Promise<unknown> =>
  new Promise((resolve, reject) => {
    ;(client as pg.PoolClient).query({ text: SLOW, query_timeout: 20 } as pg.QueryConfig, (error, result) => {
      if (error) reject(error)
      else resolve(result)
    })
  })

describe('a client-side timeout that the function catches, pg', () => {
  const ways: [string, (tx: Transaction) => Promise<unknown>][] = [
    ['through tx.client', (tx) => slowly(tx.client)],
    ['through tx.client, with a callback', (tx) => byCallback(tx.client)],
    ['in a savepoint', (tx) => tx.savepoint((inner) => slowly(inner.client))],
    [
      'in a transaction that was begun on tx.client',
      async (tx) => {
        const client = clientOf('pg', tx.client)
        await client.send('BEGIN')
        try {
          await slowly(tx.client)
        } finally {
          await client.send('ROLLBACK')
        }
      },
    ],
  ]
  test.each(ways)('commits nothing, and names it in the error: %s', async (_, run) => {
    const lockstep = impatient()
    const swallowing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'before')
      const failure = await failureOf(run(tx))
      expect((failure as Error).message).toBe('Query read timeout')
      return 'as if nothing were wrong'
    })
    const error = await failureOf(swallowing)
    expect(error).toBeInstanceOf(TransactionRolledBackError)
    expect(error).toMatchObject({ keys: ['Order:1'], cause: { message: 'Query read timeout' } })
    expect((error as Error).message).toContain('Query read timeout')
    // The session has ended with it, however long the statement would have gone on.
    expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'free')).toBe('free')
    expect(await bench.notes()).toEqual([])
  })

  test('commits nothing with query_timeout on the whole pool', async () => {
    const pool = new pg.Pool({ connectionString: bench.url, max: 2, query_timeout: 400 })
    const lockstep = new Lockstep(pool, { silenceMs: 5000 })
    bench.cleanUp(() => lockstep.close().then(() => pool.end()))
    let runs = 0
    const swallowing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      runs++
      await note(tx, 'before')
      await tx
        .savepoint((inner) => inner.query(`INSERT INTO notes SELECT 'slow' FROM pg_sleep(1)`))
        .catch(() => undefined)
      expect(await failureOf(tx.query('SELECT 1'))).toBeInstanceOf(TransactionRolledBackError)
      expect(await failureOf(tx.savepoint(async () => undefined))).toBeInstanceOf(TransactionRolledBackError)
      expect(await failureOf(tx.enqueue({ topic: 'orders', key: '1', payload: {} }))).toBeInstanceOf(
        TransactionRolledBackError,
      )
    })
    expect(await failureOf(swallowing)).toMatchObject({
      code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK',
      cause: { message: 'Query read timeout' },
    })
    expect(runs).toBe(1)
    expect(await bench.notes()).toEqual([])
  })

  test('is the error when the function does not catch it, and frees the lock', async () => {
    const lockstep = impatient()
    const failing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'before')
      await (tx.client as unknown as pg.PoolClient).query({
        text: 'SELECT pg_sleep(60)',
        query_timeout: 20,
      } as pg.QueryConfig)
    })
    expect(await failureOf(failing)).toMatchObject({ message: 'Query read timeout' })
    await expect.poll(() => bench.locksHeld()).toBe(0)
    expect(await bench.notes()).toEqual([])
  })
})

describe('an answer that the driver cannot read', () => {
  test('commits nothing, pg', async () => {
    const lockstep = impatient()
    const swallowing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const types = {
        getTypeParser: () => () => {
          throw new TypeError('unreadable')
        },
      }
      const query = { text: `INSERT INTO notes VALUES ('unread') RETURNING id`, types } as unknown as pg.QueryConfig
      await (tx.client as unknown as pg.PoolClient).query(query).catch(() => undefined)
    })
    expect(await failureOf(swallowing)).toMatchObject({
      code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK',
      cause: { message: 'unreadable' },
    })
    expect(await bench.notes()).toEqual([])
  })

  test.each(['tx.query()', 'tx.client'])('commits nothing, postgres.js, %s', async (by) => {
    const unreadable = {
      to: 25,
      from: [25],
      serialize: (value: unknown) => String(value),
      parse: (value: string) => {
        if (value === 'unread') throw new TypeError('unreadable')
        return value
      },
    }
    const sql = postgres(bench.url, { max: 2, onnotice: () => undefined, types: { unreadable } })
    const lockstep = new Lockstep(sql)
    bench.cleanUp(() => lockstep.close().then(() => sql.end({ timeout: 0.1 })))
    const swallowing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const text = `INSERT INTO notes VALUES ('unread') RETURNING id`
      const asking = by === 'tx.client' ? tx.client.unsafe(text) : tx.query(text)
      await Promise.resolve(asking).catch(() => undefined)
    })
    expect(await failureOf(swallowing)).toMatchObject({
      code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK',
      cause: { message: 'unreadable' },
    })
    expect(await bench.notes()).toEqual([])
  })
})

describe.each(DRIVERS)('a statement that was never sent, %s', (driver) => {
  /** No driver can write it. */
  const circular: { self?: unknown } = {}
  circular.self = circular
  const unwritable: [string, unknown][] =
    driver === 'pg'
      ? [['a circular object', circular]]
      : [
          ['undefined', undefined],
          ['a circular object', circular],
        ]

  test.each(unwritable)('lets the transaction continue: %s', async (_, value) => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'before')
      expect(await failureOf(tx.query('SELECT $1::jsonb', [value]))).toBeInstanceOf(Error)
      const client = ofTransaction(driver, tx)
      expect(await failureOf(client.send('SELECT $1::jsonb', [value]))).toBeInstanceOf(Error)
      await noteBy(client, 'after')
    })
    expect(await bench.notes()).toEqual(['after', 'before'])
  })
})

test('commits nothing when a statement is rejected with the error of the next one, postgres.js', async () => {
  const { lockstep } = bench.open('postgres.js')
  const swallowing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
    const sql = tx.client as unknown as postgres.Sql
    const circular: Record<string, unknown> = {}
    const ask = (value: Record<string, unknown>): PromiseLike<unknown> => sql`SELECT ${sql.json(value as never)}`
    await ask(circular)
    circular['self'] = circular
    const sent = failureOf(sql`INSERT INTO notes SELECT 'sent' FROM pg_sleep(0.1)`.execute())
    // postgres.js forgets this one, and rejects the one that is on its way.
    void ask(circular).then(undefined, () => undefined)
    expect(await sent).toBeInstanceOf(TypeError)
  })
  expect(await failureOf(swallowing)).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK' })
  expect(await bench.notes()).toEqual([])
})
