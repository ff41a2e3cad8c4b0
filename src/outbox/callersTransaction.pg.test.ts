import pg from 'pg'
import type { ReservedSql } from 'postgres'
import { beforeEach, describe, expect, test } from 'vitest'
import { type Client, type DriverName, DRIVERS, failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import {
  DriverUnsupportedError,
  InvalidOptionError,
  JoinRefusedError,
  type Transaction,
  TransactionEndedError,
} from '../index.ts'

/** Events in a transaction that the caller opened. Where there is none, the event would be committed by itself, whatever comes after. */

const bench = await testBench()

beforeEach(() => bench.admin.query('TRUNCATE lockstep.outbox_events; ALTER SEQUENCE lockstep.outbox_ids RESTART'))

const EVENT = { topic: 'trades', key: 'a', payload: {} }

async function stored(): Promise<Record<string, unknown>[]> {
  const { rows } = await bench.admin.query<Record<string, unknown>>(
    'SELECT key, seq::int AS seq, payload, bytes, headers FROM lockstep.outbox_events ORDER BY id',
  )
  return rows
}

/** A client without an open transaction. */
async function withClient<T>({ pool }: Client, work: (client: object) => Promise<T>): Promise<T> {
  const client = pool instanceof pg.Pool ? await pool.connect() : await pool.reserve()
  try {
    return await work(client)
  } finally {
    client.release()
  }
}

const ROUTES = bench.pooledUrl === undefined ? ['direct'] : ['direct', 'through PgBouncer']

function open(driver: DriverName, route: string): Client {
  return bench.open(driver, route === 'direct' ? {} : { url: bench.pooledUrl as string })
}

describe.each(DRIVERS)('%s', (driver) => {
  describe.each(ROUTES)('%s', (route) => {
    test('refuses a pool', async () => {
      const { lockstep, pool } = open(driver, route)
      expect(await failureOf(lockstep.outbox.enqueue(pool, EVENT))).toBeInstanceOf(JoinRefusedError)
      expect(await stored()).toEqual([])
    })

    test('refuses a client on which no transaction is open, and leaves it usable', async () => {
      const client = open(driver, route)
      await withClient(client, async (own) => {
        const error = await failureOf(client.lockstep.outbox.enqueue(own, EVENT))
        expect(error).toBeInstanceOf(JoinRefusedError)
        expect(error).toMatchObject({ code: 'LOCKSTEP_JOIN_REFUSED', cause: { code: '25P01' } })
      })
      expect(await stored()).toEqual([])
      await client.begin('', (own) => client.lockstep.outbox.enqueue(own, EVENT))
      expect(await stored()).toMatchObject([{ seq: 1 }])
    })

    test('refuses events through a tx of join() whose transaction is over', async () => {
      const client = open(driver, route)
      await withClient(client, async (own) => {
        const send = (text: string): Promise<unknown> =>
          driver === 'pg' ? (own as pg.PoolClient).query(text) : (own as ReservedSql).unsafe(text)
        await send('BEGIN')
        const tx = await client.lockstep.join(own)
        await tx.enqueue(EVENT)
        await send('COMMIT')
        const error = await failureOf(tx.enqueue(EVENT))
        expect(error instanceof JoinRefusedError || error instanceof TransactionEndedError).toBe(true)
        const many = await failureOf(tx.enqueueMany([EVENT, EVENT]))
        expect(many instanceof JoinRefusedError || many instanceof TransactionEndedError).toBe(true)
      })
      expect(await stored()).toHaveLength(1)
    })
  })

  test('writes what it was given, in one round trip', async () => {
    const { proxy, lockstep, begin } = await bench.proxied(driver)
    const payload = { text: `it's "quoted" \\ and $1, ${'x'.repeat(5000)}`, n: 1, nothing: null }
    const headers = { 'content-language': `o'brien \\n` }
    await begin('', async (client) => {
      // What postgres.js asks once for a connection is not ours.
      await lockstep.outbox.enqueue(client, EVENT)
      proxy.roundTrips = 0
      expect(await lockstep.outbox.enqueue(client, { topic: `o'b\\`, key: 'b', payload, headers })).toEqual({ seq: 1 })
      expect(await lockstep.outbox.enqueue(client, { ...EVENT, payload: Buffer.from([0, 39, 92, 255]) })).toEqual({
        seq: 2,
      })
      expect(proxy.roundTrips).toBe(2)
      const tx = await lockstep.join(client)
      await tx.enqueueMany([
        { ...EVENT, key: 'c', payload, headers },
        { ...EVENT, key: 'c', payload: Buffer.from([1]) },
      ])
    })
    expect(await stored()).toEqual([
      { key: 'a', seq: 1, payload: {}, bytes: null, headers: null },
      { key: 'b', seq: 1, payload, bytes: null, headers },
      { key: 'a', seq: 2, payload: null, bytes: Buffer.from([0, 39, 92, 255]), headers: null },
      { key: 'c', seq: 1, payload, bytes: null, headers },
      { key: 'c', seq: 2, payload: null, bytes: Buffer.from([1]), headers: null },
    ])
  })

  test('enqueues a list in one round trip', async () => {
    const { proxy, lockstep, begin } = await bench.proxied(driver)
    await begin('', async (client) => {
      await lockstep.outbox.enqueueMany(client, [{ ...EVENT, key: 'b' }])
      proxy.roundTrips = 0
      await lockstep.outbox.enqueueMany(client, [
        { ...EVENT, key: 'b', payload: { n: 2 } },
        { ...EVENT, payload: { n: 1 } },
        { ...EVENT, key: 'b', payload: { n: 3 } },
      ])
      expect(proxy.roundTrips).toBe(1)
      await lockstep.outbox.enqueueMany(client, [])
      expect(proxy.roundTrips).toBe(1)
    })
    expect(await stored()).toMatchObject([
      { key: 'b', seq: 1 },
      { key: 'b', seq: 2, payload: { n: 2 } },
      { key: 'a', seq: 1, payload: { n: 1 } },
      { key: 'b', seq: 3, payload: { n: 3 } },
    ])
  })

  test('refuses a list without a transaction, and what is no list', async () => {
    const client = bench.open(driver)
    const { lockstep, pool } = client
    expect(await failureOf(lockstep.outbox.enqueueMany(pool, [EVENT]))).toBeInstanceOf(JoinRefusedError)
    await withClient(client, async (own) => {
      for (const events of [[EVENT], [EVENT, EVENT]]) {
        expect(await failureOf(lockstep.outbox.enqueueMany(own, events))).toMatchObject({ cause: { code: '25P01' } })
      }
    })
    for (const wrong of [undefined, EVENT, 'list']) {
      expect(await failureOf(lockstep.outbox.enqueueMany(pool, wrong as never))).toBeInstanceOf(InvalidOptionError)
    }
    expect(await stored()).toEqual([])
  })

  test('lists with the same streams in opposite orders do not deadlock', async () => {
    const client = bench.open(driver)
    const keys = ['a', 'b', 'c', 'd']
    const enqueue = (order: readonly string[]): Promise<unknown> =>
      client.begin('', (own) =>
        client.lockstep.outbox.enqueueMany(
          own,
          order.map((key) => ({ ...EVENT, key })),
        ),
      )
    await Promise.all(Array.from({ length: 20 }, (_, n) => enqueue(n % 2 === 0 ? keys : keys.toReversed())))
    expect(await stored()).toHaveLength(80)
  })

  test('refuses what is no client', async () => {
    const { lockstep } = bench.open(driver)
    for (const wrong of [undefined, null, 1, {}, 'client']) {
      expect(await failureOf(lockstep.outbox.enqueue(wrong as never, EVENT))).toBeInstanceOf(DriverUnsupportedError)
    }
    await lockstep.transaction({}, async (tx: Transaction) => {
      expect(await failureOf(lockstep.outbox.enqueue(tx, EVENT))).toMatchObject({
        advice: expect.stringContaining('tx.enqueue()') as string,
      })
    })
    expect(await stored()).toEqual([])
  })
})
