import pg from 'pg'
import postgres from 'postgres'
import { describe, expectTypeOf, test } from 'vitest'
import {
  type ClientOf,
  type Combined,
  type EventMap,
  type HistoryEntry,
  type Isolation,
  type Key,
  key,
  type Lease,
  type LeaseInfo,
  type LockedRows,
  lockRows,
  Lockstep,
  type OnceResult,
  perEvent,
  type RowId,
  type StatementResult,
  type Transaction,
  type TransactionOptions,
} from './index.ts'

declare const byPg: Lockstep<EventMap, pg.Pool>
declare const byPostgresJs: Lockstep<EventMap, postgres.Sql>
declare const id: string
declare const number: number
declare const heldLease: Lease
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

  test('values that a template would lose do not compile in key``', () => {
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
    expectTypeOf(new Lockstep(new pg.Pool())).toEqualTypeOf<Lockstep<EventMap, pg.Pool>>()
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
    expectTypeOf(new Lockstep(postgres())).toEqualTypeOf<Lockstep<EventMap, postgres.Sql>>()
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

  test('other objects than pools do not compile', () => {
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

describe('rows', () => {
  test('have the type that the caller states, and stay a list', () => {
    void byPg.transaction({}, async (tx) => {
      const rows = await lockRows<{ balance: number }>(tx, 'accounts', [id, number, 10n])
      expectTypeOf(rows).toEqualTypeOf<LockedRows<{ balance: number }>>()
      expectTypeOf(rows[0]).toEqualTypeOf<{ balance: number } | undefined>()
      expectTypeOf(rows.get(id)).toEqualTypeOf<{ balance: number } | undefined>()
      expectTypeOf(rows.missing).toEqualTypeOf<readonly RowId[]>()
      expectTypeOf(await lockRows(tx, 'accounts', [])).toEqualTypeOf<LockedRows<Record<string, unknown>>>()
      await lockRows(tx, { schema: 'ledger', table: 'positions' }, [[id, 'long', new Date()]] as const, {
        key: ['symbol', 'side', 'opened'],
        mode: 'noKeyUpdate',
      })
    })
    void byPostgresJs.transaction({}, (tx) => lockRows(tx, 'accounts', [id], { allowMissing: true, skipLocked: true }))
    void byPg.join({}).then((tx) => lockRows(tx, 'accounts', [id], { noWait: true }))
  })

  test('invalid calls do not compile', () => {
    void byPg.transaction({}, async (tx) => {
      // @ts-expect-error one of the two
      await lockRows(tx, 'accounts', [id], { noWait: true, skipLocked: true })
      // @ts-expect-error a list of ids
      await lockRows(tx, 'accounts', id)
      // @ts-expect-error a row has a name
      await lockRows(tx, 'accounts', [undefined])
      // @ts-expect-error it is called noKeyUpdate
      await lockRows(tx, 'accounts', [id], { mode: 'no key update' })
    })
    // @ts-expect-error a transaction, not a Lockstep
    void lockRows(byPg, 'accounts', [id])
  })
})

describe('once', () => {
  test('gives what is found or created', () => {
    const find = async (): Promise<{ id: string } | undefined> => Promise.resolve(undefined)
    const create = async (): Promise<{ id: string }> => Promise.resolve({ id })
    expectTypeOf(byPg.once('Position:BTC', { find, create })).resolves.toEqualTypeOf<OnceResult<{ id: string }>>()
    void byPg.once(key`Position:${id}`, {
      find: async (tx) => {
        expectTypeOf(tx.client).toEqualTypeOf<pg.PoolClient>()
        return (await tx.query<{ id: string }>('SELECT 1')).rows[0]
      },
      create,
      isolation: 'serializable',
    })
  })

  test('invalid calls do not compile', () => {
    const find = async (): Promise<number | undefined> => Promise.resolve(undefined)
    // @ts-expect-error who creates?
    void byPg.once('Position:BTC', { find })
    // @ts-expect-error it finds a number and creates a string
    void byPg.once('Position:BTC', { find, create: async () => Promise.resolve('one') })
    // @ts-expect-error it may be anything
    void byPg.once(id, { find, create: async () => Promise.resolve(1) })
    // @ts-expect-error that is onceExternal()
    void byPg.once('Position:BTC', { find, begin: find, act: find, finish: async () => Promise.resolve(1) })
  })

  test('onceExternal gives what is found or created, and hands the pending state and the outcome on', () => {
    const created = byPg.onceExternal('Position:BTC', {
      find: async (tx): Promise<{ done: number } | { pending: string } | undefined> => {
        expectTypeOf(tx.client).toEqualTypeOf<pg.PoolClient>()
        return Promise.resolve(undefined)
      },
      begin: async () => Promise.resolve('begun'),
      act: async (pending, { signal, takenOver }) => {
        expectTypeOf(pending).toEqualTypeOf<string>()
        expectTypeOf(signal).toEqualTypeOf<AbortSignal>()
        expectTypeOf(takenOver).toEqualTypeOf<boolean>()
        return Promise.resolve(10n)
      },
      finish: async (_tx, pending, outcome) => {
        expectTypeOf(pending).toEqualTypeOf<string>()
        expectTypeOf(outcome).toEqualTypeOf<bigint>()
        return Promise.resolve(1)
      },
      waitMs: false,
    })
    expectTypeOf(created).resolves.toEqualTypeOf<OnceResult<number>>()
    // @ts-expect-error who acts?
    void byPg.onceExternal('Position:BTC', { find: fn, create: fn })
  })
})

describe('outbox and inbox', () => {
  const event = { topic: 'trades', key: 'p-7', seq: 1, id: '0d9b7a52-5a0f-4b39-9d4e-0a8f5f0f7a11', quantity: 5 }
  const stream = { topic: 'trades', key: 'p-7' }

  test('a dispatcher is made by the outbox, a consumer by the inbox', () => {
    const dispatcher = byPg.outbox.dispatcher({ name: 'reports', sink: perEvent({ concurrency: 4 }, fn) })
    const consumer = byPg.inbox.consumer('reports')
    expectTypeOf(dispatcher.name).toEqualTypeOf<string>()
    expectTypeOf(consumer.name).toEqualTypeOf<string>()
    void consumer.handle(event, { lock: key`Portfolio:${id}` }, async (tx, { quantity }) => {
      expectTypeOf(tx).toEqualTypeOf<Transaction<pg.PoolClient>>()
      expectTypeOf(quantity).toEqualTypeOf<number>()
    })
  })

  test('the stream comes first, who acts and why second', () => {
    void byPg.outbox.retry(stream)
    void byPg.outbox.parked().then(([parked]) => parked && byPg.outbox.pause(parked, { by: id, reason: id }))
    void byPg.outbox.skip({ ...stream, seq: 1 }, { reason: id })
    void byPg.outbox.removeDispatcher('reports', { reason: id })
  })

  test('invalid calls do not compile', () => {
    // @ts-expect-error the outbox makes dispatchers
    byPg.dispatcher({ sink: fn })
    // @ts-expect-error the inbox makes consumers
    byPg.inbox('reports')
    // @ts-expect-error the options come before the function
    void byPg.inbox.consumer('reports').handle(event, fn)
    // @ts-expect-error the options come before the function
    perEvent(fn)
    // @ts-expect-error a reason is for the audit, not a part of the stream
    void byPg.outbox.pause({ ...stream, reason: 'maintenance' })
    // @ts-expect-error why?
    void byPg.outbox.skip({ ...stream, seq: 1 })
    // @ts-expect-error why?
    void byPg.outbox.removeDispatcher('reports', {})
  })
})

describe('combine', () => {
  interface Deposit {
    readonly to: string
  }
  class Refused extends Error {
    readonly why = 'refused'
  }

  test('the item comes from key, the result from run, without its errors', () => {
    const deposit = byPg.combine({
      key: ({ to }: Deposit) => key`Account:${to}`,
      run: async (tx, items) => {
        expectTypeOf(tx).toEqualTypeOf<Transaction<pg.PoolClient>>()
        expectTypeOf(items).toEqualTypeOf<readonly Deposit[]>()
        return Promise.resolve(items.map((item, at) => (at === 0 ? new Refused(item.to) : at)))
      },
    })
    expectTypeOf(deposit({ to: id })).resolves.toEqualTypeOf<number>()
    expectTypeOf(deposit).parameter(0).toEqualTypeOf<Deposit>()
    void deposit({ to: id }, { signal: AbortSignal.timeout(number) })
    expectTypeOf(deposit).toEqualTypeOf<Combined<Deposit, number>>()
    expectTypeOf(deposit).toExtend<(item: Deposit) => Promise<number>>()
  })

  test('invalid calls do not compile', () => {
    const run = async (_tx: Transaction, items: readonly Deposit[]): Promise<number[]> =>
      Promise.resolve(items.map(() => 1))
    // @ts-expect-error by what?
    byPg.combine({ run })
    // @ts-expect-error it may be anything
    byPg.combine({ key: ({ to }: Deposit) => to, run })
    // @ts-expect-error a list, one for each
    byPg.combine({ key: ({ to }: Deposit) => key`Account:${to}`, run: async () => Promise.resolve(1) })
    const deposit = byPg.combine({ key: ({ to }: Deposit) => key`Account:${to}`, run })
    // @ts-expect-error an account
    void deposit({ from: id })
  })
})

describe('leases', () => {
  test('what the function returns is returned, and its transactions have the driver’s client', () => {
    expectTypeOf(byPg.lease(key`Instance:${id}`, {}, async () => 42)).resolves.toEqualTypeOf<number>()
    void byPg.lease('Instance:1', { ttlMs: number, waitMs: false, permits: 3, metadata: { id } }, async (lease) => {
      expectTypeOf(lease).toEqualTypeOf<Lease<pg.PoolClient>>()
      expectTypeOf(lease.fence).toEqualTypeOf<bigint>()
      expectTypeOf(lease.signal).toEqualTypeOf<AbortSignal>()
      expectTypeOf(lease.transaction({}, async (tx) => tx.client)).resolves.toEqualTypeOf<pg.PoolClient>()
      const rows = await lease.transaction({ isolation: 'serializable' }, async (tx) => {
        return (await tx.query<{ n: number }>('SELECT 1 AS n')).rows
      })
      expectTypeOf(rows).toEqualTypeOf<{ n: number }[]>()
    })
    void byPostgresJs.lease('Instance:1', {}, async (lease) => {
      await lease.transaction({}, async (tx) => expectTypeOf(tx.client).toEqualTypeOf<postgres.ReservedSql>())
    })
  })

  test('acquired, tried and led', () => {
    expectTypeOf(byPg.leases.acquire('Instance:1')).resolves.toEqualTypeOf<Lease<pg.PoolClient>>()
    expectTypeOf(byPg.leases.tryAcquire('Instance:1')).resolves.toEqualTypeOf<Lease<pg.PoolClient> | undefined>()
    expectTypeOf(byPg.leader('Leader:1', {}, async () => 42)).resolves.toEqualTypeOf<number | undefined>()
    expectTypeOf(byPg.leases.list({ prefix: 'Instance:' })).resolves.toEqualTypeOf<LeaseInfo[]>()
    expectTypeOf(byPg.leases.history('Instance:1')).resolves.toEqualTypeOf<HistoryEntry[]>()
    expectTypeOf<Lease>().toExtend<AsyncDisposable>()
  })

  test('invalid calls do not compile', () => {
    // @ts-expect-error it may be anything
    void byPg.leases.acquire(id)
    // @ts-expect-error it is called ttlMs
    void byPg.leases.acquire('Instance:1', { ttl: number })
    // @ts-expect-error the options come first
    void byPg.lease('Instance:1', fn)
    // @ts-expect-error a leader waits without limit
    void byPg.leader('Leader:1', { waitMs: 5 }, fn)
    // @ts-expect-error the options come before the function
    void byPg.leader('Leader:1', fn)
    // @ts-expect-error the options come before the function
    void byPg.leader('Leader:1', fn, { ttlMs: number })
    // @ts-expect-error the options come before the function
    void heldLease.transaction(fn)
    // @ts-expect-error who, and why?
    void byPg.leases.forceRelease('Instance:1', {})
    // @ts-expect-error a function that is not async has most likely forgotten to await
    void byPg.lease('Instance:1', {}, () => 42)
  })
})

describe('options', () => {
  test('isolation is one of three, and what is misspelt does not compile', () => {
    expectTypeOf<Isolation>().toEqualTypeOf<'read committed' | 'repeatable read' | 'serializable'>()
    // @ts-expect-error lower case
    void byPg.transaction({ isolation: 'SERIALIZABLE' }, fn)
    // @ts-expect-error it is called lock
    void byPg.transaction({ locks: 'Transfer:42' }, fn)
    const misspelled = { locks: 'Transfer:42', waitMs: 5 }
    // @ts-expect-error it is called lock, also in a variable
    void byPg.transaction(misspelled, fn)
    // @ts-expect-error it is called lock, also in a variable
    void heldLease.transaction(misspelled, async () => 1)
    // @ts-expect-error it is called lock, also in a variable
    void byPg.join({}, misspelled)
    // @ts-expect-error a list of keys is no set of options
    void byPg.transaction(['Transfer:42'], fn)
    // @ts-expect-error true says nothing
    void byPg.transaction({ retry: true }, fn)
    // @ts-expect-error it is called switchBack
    void new Lockstep(new pg.Pool(), { rollout: 'on', rollback: { waitMs: 5 } })
    // @ts-expect-error false is the choice of a call
    void new Lockstep(new pg.Pool(), { retry: false })
    // @ts-expect-error the level is the caller's own
    void byPg.join({}, { isolation: 'serializable' })
    const given: TransactionOptions = { lock: 'Transfer:42' }
    void byPg.transaction(given, fn)
    void byPg.transaction({ ...given, waitMs: 5 }, fn)
    void byPg.transaction<void>({ lock: 'Transfer:42' }, fn)
    void byPg.transaction({ [id === '' ? 'lock' : 'lockShared']: key`Transfer:${id}` }, fn)
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
