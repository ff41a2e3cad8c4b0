import { beforeAll, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  lockRows,
  type Lockstep,
  type LockRowsOptions,
  RowsDeadlockedError,
  type TransactionOptions,
} from '../index.ts'
import { type EventMessage, on } from '../observe/index.ts'

/** Rows of one table, found by two columns whose orders are opposite: each call is in order, and two of them can wait in a circle. */

const bench = await testBench()

beforeAll(() =>
  bench.admin.query(`
    CREATE TABLE accounts (id integer PRIMARY KEY, iban text UNIQUE, balance integer NOT NULL DEFAULT 0);
    INSERT INTO accounts VALUES (1, 'c'), (2, 'b'), (3, 'a');
    CREATE TABLE other (LIKE accounts INCLUDING ALL);
    INSERT INTO other SELECT * FROM accounts`),
)

/**
 * Has one caller lock all three by id and another by iban, so that each holds its first row while it waits for the middle one. Gives
 * how they ended.
 */
async function meet(
  [one, other]: readonly [Lockstep, Lockstep],
  options: TransactionOptions,
  byIban: LockRowsOptions,
): Promise<PromiseSettledResult<unknown>[]> {
  const [held, letGo] = [signal(), signal()]
  const holder = bench.open('pg').lockstep.transaction({}, async (tx) => {
    await lockRows(tx, 'accounts', [2])
    held.give()
    await letGo.given
  })
  await Promise.race([held.given, holder])
  const pids = [0, 0]
  const call = (lockstep: Lockstep, place: 0 | 1): Promise<unknown> =>
    lockstep.transaction(options, async (tx) => {
      pids[place] = await pidOf(tx)
      return place === 0
        ? lockRows(tx, 'accounts', [1, 2, 3])
        : lockRows(tx, 'accounts', ['a', 'b', 'c'], { key: 'iban', ...byIban })
    })
  const first = call(one, 0)
  await bench.blocked(() => pids[0] ?? 0)
  const second = call(other, 1)
  await bench.blocked(() => pids[1] ?? 0)
  letGo.give()
  await holder
  return Promise.allSettled([first, second])
}

describe.each(DRIVERS)('rows found by two columns, %s', (driver) => {
  const two = (): readonly [Lockstep, Lockstep] => {
    const { lockstep } = bench.open(driver)
    return [lockstep, lockstep]
  }

  test('reports a deadlock with the table and both orders', async () => {
    const ended = await meet(two(), { retry: false }, {})
    const failures = ended.flatMap((each) => (each.status === 'rejected' ? [each.reason as unknown] : []))
    expect(failures).toHaveLength(1)
    const [error] = failures as [RowsDeadlockedError]
    expect(error).toBeInstanceOf(RowsDeadlockedError)
    expect(error).toMatchObject({ code: 'LOCKSTEP_ROWS_DEADLOCKED', table: '"accounts"', cause: { code: '40P01' } })
    expect(error.orders.toSorted()).toEqual(['("iban")', '("id")'])
    for (const name of ['"accounts"', '("id")', '("iban")', 'orderBy']) expect(error.message).toContain(name)
  })

  test('retries the transaction that the server ended', async () => {
    const reasons: (string | undefined)[] = []
    const stop = on('transaction.retried', ({ reason }) => reasons.push(reason))
    const ended = await meet(two(), {}, {}).finally(stop)
    expect(ended.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled'])
    // The one that is retried may be quicker at its first row than the one that waits for it: then they deadlock once more.
    expect(new Set(reasons)).toEqual(new Set(['40P01']))
  })

  test('reports a deadlock with a process whose orders are not known without them', async () => {
    const apart = [bench.open(driver).lockstep, bench.open(driver).lockstep] as const
    const ended = await meet(apart, { retry: false }, {})
    const [error] = ended.flatMap((each) => (each.status === 'rejected' ? [each.reason as RowsDeadlockedError] : []))
    expect(error).toBeInstanceOf(RowsDeadlockedError)
    expect(error?.orders).toHaveLength(1)
  })

  test('avoids the deadlock with one stated order, and finds rows by the given ids', async () => {
    const ended = await meet(two(), { retry: false }, { orderBy: 'id' })
    expect(ended.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled'])
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({}, async (tx) => {
      const rows = await lockRows<{ id: number }>(tx, 'accounts', ['a', 'c'], { key: 'iban', orderBy: ['id'] })
      expect(rows.map(({ id }) => id)).toEqual([1, 3])
      expect(rows.get('a')?.id).toBe(3)
      const many = Array.from({ length: 150 }, (_, n) => `missing ${n}`)
      const general = await lockRows<{ id: number }>(tx, 'accounts', ['a', ...many, 'c'], {
        key: 'iban',
        orderBy: 'id',
        allowMissing: true,
      })
      expect(general.map(({ id }) => id)).toEqual([1, 3])
      expect(general.missing).toHaveLength(150)
    })
  })

  async function told(work: () => Promise<unknown>): Promise<EventMessage<'rows.outOfOrder'>[]> {
    const messages: EventMessage<'rows.outOfOrder'>[] = []
    const stop = on('rows.outOfOrder', (message) => messages.push(message))
    await work().finally(stop)
    return messages
  }

  test('reports two orders of one table once, also over two transactions', async () => {
    const { lockstep } = bench.open(driver)
    const messages = await told(async () => {
      for (let round = 0; round < 2; round++) {
        await lockstep.transaction({}, (tx) => lockRows(tx, 'accounts', [1, 3]))
        // One row alone is in every order; with noWait no call waits; another table; the same order.
        await lockstep.transaction({}, (tx) => lockRows(tx, 'accounts', ['a'], { key: 'iban' }))
        await lockstep.transaction({}, (tx) => lockRows(tx, 'accounts', ['a', 'b'], { key: 'iban', noWait: true }))
        await lockstep.transaction({}, (tx) => lockRows(tx, 'other', ['a', 'b'], { key: 'iban' }))
        await lockstep.transaction({}, (tx) => lockRows(tx, 'accounts', ['a', 'c'], { key: 'iban', orderBy: 'id' }))
      }
    })
    expect(messages).toEqual([])
    const again = await told(async () => {
      await lockstep.transaction({}, (tx) => lockRows(tx, 'accounts', ['a', 'c'], { key: 'iban' }))
      await lockstep.transaction({}, (tx) => lockRows(tx, 'accounts', ['a', 'c'], { key: 'iban' }))
    })
    expect(again).toMatchObject([
      {
        table: '"accounts" ("iban")',
        earlier: { orderBy: ['"id"'], id: [], stack: expect.stringContaining('orders.pg.test.ts') as string },
        later: { orderBy: ['"iban"'], id: [], stack: expect.stringContaining('orders.pg.test.ts') as string },
      },
    ])
    // Another Lockstep may be on another database.
    const elsewhere = bench.open(driver).lockstep
    expect(
      await told(() => elsewhere.transaction({}, (tx) => lockRows(tx, 'accounts', ['a', 'c'], { key: 'iban' }))),
    ).toEqual([])
  })

  test('reports two orders in one transaction, also of one row each', async () => {
    const { lockstep } = bench.open(driver)
    const messages = await told(() =>
      lockstep.transaction({}, async (tx) => {
        await lockRows(tx, 'accounts', [1])
        await lockRows(tx, 'accounts', ['a'], { key: 'iban' })
      }),
    )
    expect(messages).toMatchObject([
      { earlier: { orderBy: ['"id"'], id: ['1'] }, later: { orderBy: ['"iban"'], id: ['a'] } },
    ])
    expect(
      await told(() =>
        lockstep.transaction({}, async (tx) => {
          await lockRows(tx, 'accounts', [1])
          await lockRows(tx, 'accounts', ['a'], { key: 'iban', orderBy: 'id' })
        }),
      ),
    ).toEqual([])
  })

  test('rejects an invalid order', async () => {
    await bench.open(driver).lockstep.transaction({}, async (tx) => {
      const call = lockRows(tx, 'accounts', [1], { orderBy: [] })
      expect(await failureOf(call)).toMatchObject({ code: 'LOCKSTEP_INVALID_OPTION' })
    })
  })
})
