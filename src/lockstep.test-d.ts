import pg from 'pg'
import postgres from 'postgres'
import { describe, expectTypeOf, test } from 'vitest'
import {
  type ClientOf,
  type Isolation,
  type Key,
  key,
  Lockstep,
  type StatementResult,
  type Transaction,
  type TransactionOptions,
} from './index.ts'

declare const byPg: Lockstep<pg.Pool>
declare const byPostgresJs: Lockstep<postgres.Sql>
declare const id: string
declare const number: number
const fn = async (): Promise<void> => undefined

describe('keys', () => {
  test('templates, key`` and lists of them compile', () => {
    void byPg.transaction({ lock: `Transfer:${id}` }, fn)
    void byPg.transaction({ lock: key`Transfer:${id}` }, fn)
    void byPg.transaction({ lock: key`Transfer:${number}:${10n}` }, fn)
    void byPg.transaction({ lock: 'Transfer:42' }, fn)
    void byPg.transaction({ lock: [`Transfer:${id}`, key`Order:${number}`, 'Ledger:global'] }, fn)
    void byPg.transaction({ lock: ['A:1', 'B:2'] as const, lockShared: [] }, fn)
    void byPg.join({}, { lock: `Transfer:${id}`, lockShared: ['Ledger:open'] })
    expectTypeOf(key`Transfer:${id}`).toEqualTypeOf<Key>()
    expectTypeOf(byPg.lockId('Transfer:42')).toEqualTypeOf<bigint>()
  })

  test('generic labels and plain strings do not', () => {
    // @ts-expect-error it names no resource
    void byPg.transaction({ lock: 'lock' }, fn)
    // @ts-expect-error it may be anything
    void byPg.transaction({ lock: id }, fn)
    // @ts-expect-error one of them names no resource
    void byPg.transaction({ lock: ['Transfer:1', 'lock'] }, fn)
    // @ts-expect-error they may be anything
    void byPg.transaction({ lockShared: [id] }, fn)
    // @ts-expect-error a template without a colon
    void byPg.transaction({ lock: `Transfer${id}` }, fn)
    // @ts-expect-error it may be anything
    void byPg.join({}, { lock: id })
    // @ts-expect-error it may be anything
    byPg.lockId(id)
    // @ts-expect-error a number is no key
    void byPg.transaction({ lock: 42 }, fn)
    expectTypeOf<string>().not.toExtend<Key>()
  })

  test('what would be forgotten in a template does not go into key``', () => {
    // @ts-expect-error not every part is there
    void key`Transfer:${undefined}`
    // @ts-expect-error not every part is there
    void key`Transfer:${null}`
    // @ts-expect-error an object has no name
    void key`Transfer:${{ id }}`
    // @ts-expect-error not awaited
    void key`Transfer:${Promise.resolve(id)}`
  })
})

describe('the client', () => {
  test('pg: a PoolClient', () => {
    expectTypeOf<ClientOf<pg.Pool>>().toEqualTypeOf<pg.PoolClient>()
    expectTypeOf(new Lockstep(new pg.Pool())).toEqualTypeOf<Lockstep<pg.Pool>>()
    void byPg.transaction({}, async (tx) => {
      expectTypeOf(tx).toEqualTypeOf<Transaction<pg.PoolClient>>()
      expectTypeOf(tx.client).toEqualTypeOf<pg.PoolClient>()
      await tx.savepoint(async (inner) => expectTypeOf(inner.client).toEqualTypeOf<pg.PoolClient>())
      return tx.client.query<{ n: number }>('SELECT 1 AS n')
    })
    expectTypeOf(byPg.join({})).resolves.toEqualTypeOf<Transaction<pg.PoolClient>>()
  })

  test('postgres.js: a reserved sql, which is a template tag', () => {
    expectTypeOf<ClientOf<postgres.Sql>>().toEqualTypeOf<postgres.ReservedSql>()
    expectTypeOf(new Lockstep(postgres())).toEqualTypeOf<Lockstep<postgres.Sql>>()
    void byPostgresJs.transaction({}, async (tx) => {
      expectTypeOf(tx.client).toEqualTypeOf<postgres.ReservedSql>()
      const rows = await tx.client<{ n: number }[]>`SELECT ${number} AS n`
      expectTypeOf(rows[0]?.n).toEqualTypeOf<number | undefined>()
    })
  })

  test('postgres.js with types of its own keeps them', () => {
    const sql = postgres({ types: { bigint: postgres.BigInt } })
    const lockstep = new Lockstep(sql)
    void lockstep.transaction({}, async (tx) => {
      expectTypeOf(tx.client).toEqualTypeOf<postgres.ReservedSql<{ bigint: bigint }>>()
    })
  })

  test('what is no pool does not compile', () => {
    // @ts-expect-error one client cannot serve callers that wait for each other
    void new Lockstep(new pg.Client())
    // @ts-expect-error no pool
    void new Lockstep({})
    // @ts-expect-error no pool
    void new Lockstep()
    // @ts-expect-error no pool
    void new Lockstep('postgres://localhost')
  })
})

describe('results', () => {
  test('what the function returns is returned', () => {
    expectTypeOf(byPg.transaction({}, async () => 42)).resolves.toEqualTypeOf<number>()
    expectTypeOf(byPg.transaction({}, fn)).resolves.toEqualTypeOf<void>()
    expectTypeOf(byPg.transaction({}, async () => ({ id }))).resolves.toEqualTypeOf<{ id: string }>()
    expectTypeOf(
      byPg.transaction({}, (tx) => tx.savepoint(async () => 'inner' as const)),
    ).resolves.toEqualTypeOf<'inner'>()
    // @ts-expect-error a function that is not async has most likely forgotten to await
    void byPg.transaction({}, () => 42)
  })

  test('rows have the type that the caller states, and are unknown otherwise', () => {
    void byPg.transaction({}, async (tx) => {
      expectTypeOf(await tx.query<{ n: number }>('SELECT 1 AS n')).toEqualTypeOf<StatementResult<{ n: number }>>()
      const { rows, rowCount, command } = await tx.query('SELECT 1', [1, 'a', null])
      expectTypeOf(rows).toEqualTypeOf<Record<string, unknown>[]>()
      expectTypeOf(rowCount).toEqualTypeOf<number>()
      expectTypeOf(command).toEqualTypeOf<string>()
    })
  })
})

describe('options', () => {
  test('isolation is one of three, and what is misspelt does not compile', () => {
    expectTypeOf<Isolation>().toEqualTypeOf<'read committed' | 'repeatable read' | 'serializable'>()
    // @ts-expect-error lower case
    void byPg.transaction({ isolation: 'SERIALIZABLE' }, fn)
    // @ts-expect-error it is called lock
    void byPg.transaction({ locks: 'Transfer:42' }, fn)
    // @ts-expect-error a list of keys is no set of options
    void byPg.transaction(['Transfer:42'], fn)
    // @ts-expect-error true says nothing
    void byPg.transaction({ retry: true }, fn)
    // @ts-expect-error false is the choice of a call
    void new Lockstep(new pg.Pool(), { retry: false })
    // @ts-expect-error the level is the caller's own
    void byPg.join({}, { isolation: 'serializable' })
    expectTypeOf<TransactionOptions['waitMs']>().toEqualTypeOf<number | false | undefined>()
    expectTypeOf<{ retry: false; signal: AbortSignal; waitMs: false }>().toExtend<TransactionOptions>()
  })

  test('a Lockstep on any pool can be passed on', () => {
    expectTypeOf<Lockstep>().toHaveProperty('transaction')
    const work = (lockstep: Lockstep): Promise<number> => lockstep.transaction({ lock: 'Transfer:42' }, async () => 1)
    void work(byPg)
    void work(byPostgresJs)
  })
})
