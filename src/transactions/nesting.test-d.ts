import pg from 'pg'
import type postgres from 'postgres'
import { describe, expectTypeOf, test } from 'vitest'
import { type EventMap, key, Lockstep, type OnceResult, type Transaction, type Transactor } from '../index.ts'

declare const byPg: Lockstep<EventMap, pg.Pool>
declare const byPostgresJs: Lockstep<EventMap, postgres.Sql>
declare const id: string
declare const number: number
const fn = async (): Promise<void> => undefined

describe('nesting', () => {
  interface Trades {
    readonly trades: { readonly quantity: number }
  }
  const typed = new Lockstep<Trades, pg.Pool>(new pg.Pool())

  test('a nested transaction has the client and the events of the outer one, and returns what its function returns', () => {
    void typed.transaction({ lock: 'Order:1' }, async (tx) => {
      expectTypeOf(tx.transaction({}, async () => 42)).resolves.toEqualTypeOf<number>()
      await tx.transaction(
        { lock: key`Order:${id}`, lockShared: ['Rates:global'], isolation: 'serializable' },
        (part) => {
          expectTypeOf(part).toEqualTypeOf<Transaction<pg.PoolClient, Trades>>()
          return part.enqueue({ topic: 'trades', key: id, payload: { quantity: 1 } })
        },
      )
      const found = tx.once('Position:BTC', {
        find: async (part) => {
          expectTypeOf(part).toEqualTypeOf<Transaction<pg.PoolClient, Trades>>()
          return (await part.query<{ id: string }>('SELECT 1')).rows[0]
        },
        create: async () => Promise.resolve({ id }),
      })
      expectTypeOf(found).resolves.toEqualTypeOf<OnceResult<{ id: string }>>()
    })
  })

  test('what belongs to the outermost transaction does not compile', () => {
    const find = async (): Promise<number | undefined> => Promise.resolve(undefined)
    const create = async (): Promise<number> => Promise.resolve(1)
    void byPg.transaction({}, async (tx) => {
      // @ts-expect-error it waits for nothing
      await tx.transaction({ waitMs: 5 }, fn)
      // @ts-expect-error it waits for nothing
      await tx.transaction({ signal: AbortSignal.timeout(number) }, fn)
      // @ts-expect-error it is run again with the whole transaction
      await tx.transaction({ retry: false }, fn)
      // @ts-expect-error a part has options
      await tx.transaction(fn)
      // @ts-expect-error it waits for nothing
      await tx.once('Position:BTC', { find, create, waitMs: 5 })
      // @ts-expect-error onceExternal() acts outside of every transaction
      await tx.once('Position:BTC', { find, begin: create, act: create, finish: create })
    })
  })

  test('a function can take a Lockstep or a tx', () => {
    const pay = (db: Transactor): Promise<number> => db.transaction({ lock: key`Order:${id}` }, async () => 1)
    void pay(byPg)
    void pay(byPostgresJs)
    void byPg.transaction({ lock: key`Order:${id}` }, (tx) => pay(tx))
    const withClient = (db: Transactor<pg.PoolClient, Trades>): Promise<unknown> =>
      db.transaction({}, (tx) => tx.client.query('SELECT 1'))
    void withClient(typed)
    void typed.transaction({}, withClient)
  })

  test('detached() returns what its function returns', () => {
    expectTypeOf(byPg.detached(() => 42)).toEqualTypeOf<number>()
    expectTypeOf(byPg.detached(async () => Promise.resolve(id))).toEqualTypeOf<Promise<string>>()
    // @ts-expect-error a function
    void byPg.detached(Promise.resolve(id))
  })

  test('leases and inboxes accept the tx', () => {
    void typed.lease('Instance:1', {}, (lease) => typed.transaction({}, (tx) => lease.guard(tx)))
    const stream = { topic: 'trades', key: id }
    void typed.transaction({}, (tx) => typed.inbox.consumer('portfolios').position(tx, stream))
    void byPostgresJs.transaction({}, (tx) =>
      byPostgresJs.leases.acquire('Instance:1').then((lease) => lease.guard(tx)),
    )
  })
})
