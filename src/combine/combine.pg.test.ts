import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  BatchMismatchError,
  type Combined,
  type CombineOptions,
  InvalidOptionError,
  key,
  LockAbortedError,
  lockRows,
  type Lockstep,
  LockstepClosedError,
  LockTimeoutError,
  NestedTransactionError,
  QueueFullError,
  type Transaction,
} from '../index.ts'
import { type EventMessage, on } from '../observe/index.ts'
import { hold } from '../testing/index.ts'

const bench = await testBench()
const HOT = key`Account:hot`

interface Deposit {
  readonly id: number
  readonly account?: string
}

beforeAll(() =>
  bench.admin.query(`
    CREATE TABLE accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE deposits (id integer NOT NULL, account text NOT NULL,
      CONSTRAINT once UNIQUE (id) DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO accounts VALUES ('hot', 0), ('cold', 0)`),
)
beforeEach(() => bench.admin.query('TRUNCATE deposits; UPDATE accounts SET balance = 0'))

/** Adds 1 to the account for each, and writes it down. Ids from 1,000 on are refused by themselves. */
async function deposit(tx: Transaction, items: readonly Deposit[]): Promise<(number | Error)[]> {
  const account = items[0]?.account ?? 'hot'
  const [row] = await lockRows<{ balance: number }>(tx, 'accounts', [account])
  const good = items.filter(({ id }) => id < 1000)
  await tx.query(`INSERT INTO deposits SELECT id::int, $2 FROM unnest(string_to_array($1, ',')) AS id`, [
    good.map(({ id }) => id).join(','),
    account,
  ])
  let balance = row?.balance ?? 0
  const results = items.map(({ id }) => (id < 1000 ? ++balance : new Error(`no ${id}`)))
  await tx.query('UPDATE accounts SET balance = $1 WHERE id = $2', [balance, account])
  return results
}

function combined(
  lockstep: Lockstep,
  options: Partial<CombineOptions<Deposit, number | Error>> = {},
): Combined<Deposit, number> {
  return lockstep.combine<Deposit, number | Error>({
    key: ({ account = 'hot' }) => key`Account:${account}`,
    run: deposit,
    ...options,
  })
}

async function books(): Promise<{ balance: number; deposits: number }> {
  const { rows } = await bench.admin.query<{ balance: number; deposits: number }>(
    `SELECT (SELECT sum(balance)::int FROM accounts) AS balance, (SELECT count(*)::int FROM deposits) AS deposits`,
  )
  return rows[0] as { balance: number; deposits: number }
}

const ids = (count: number): Deposit[] => Array.from({ length: count }, (_, id) => ({ id }))

/** Runs the function and returns the batches that ended meanwhile. */
async function batchesOf(fn: () => Promise<unknown>): Promise<EventMessage<'combine.batch'>[]> {
  const batches: EventMessage<'combine.batch'>[] = []
  const stop = on('combine.batch', (message) => batches.push(message))
  await fn().finally(stop)
  return batches
}

describe.each(DRIVERS)('combine, %s', (driver) => {
  test('runs many calls in few transactions, each with its own result, in order', async () => {
    const call = combined(bench.open(driver).lockstep)
    let results: (number | Error)[] = []
    const batches = await batchesOf(async () => {
      results = await Promise.all(ids(300).map((item) => call(item)))
    })
    expect(results).toEqual(ids(300).map(({ id }) => id + 1))
    expect(await books()).toEqual({ balance: 300, deposits: 300 })
    expect(batches.length).toBeLessThan(5)
    expect(batches.reduce((sum, { size }) => sum + size, 0)).toBe(300)
    expect(batches[0]).toMatchObject({ schema: 'lockstep', key: 'Account:hot', outcome: 'committed' })
  })

  test('rejects only the 3 bad items of a batch of 500', async () => {
    const call = combined(bench.open(driver).lockstep)
    const items = ids(500).map(({ id }) => ({ id: id % 200 === 7 ? 1000 + id : id }))
    let outcomes: PromiseSettledResult<number>[] = []
    const batches = await batchesOf(async () => {
      outcomes = await Promise.allSettled(items.map((item) => call(item)))
    })
    expect(batches).toMatchObject([{ size: 500, outcome: 'committed' }])
    const failed = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [String(outcome.reason)] : []))
    expect(failed).toEqual(['Error: no 1007', 'Error: no 1207', 'Error: no 1407'])
    expect(await books()).toEqual({ balance: 497, deposits: 497 })
  })

  test('rejects only the item that fails the COMMIT of its batch', async () => {
    await bench.admin.query(`INSERT INTO deposits VALUES (123, 'hot')`)
    const call = combined(bench.open(driver).lockstep)
    let outcomes: PromiseSettledResult<number>[] = []
    const batches = await batchesOf(async () => {
      outcomes = await Promise.allSettled(ids(500).map((item) => call(item)))
    })
    const failed = outcomes.flatMap((outcome, id) => (outcome.status === 'rejected' ? [{ id, ...outcome.reason }] : []))
    expect(failed).toMatchObject([{ id: 123, code: '23505' }])
    expect(await books()).toEqual({ balance: 499, deposits: 500 })
    // 500 → 250 → … → 1: nine levels of two halves at most.
    expect(batches.length).toBeLessThanOrEqual(19)
    expect(batches[0]).toMatchObject({ size: 500, outcome: 'halved' })
  })

  test('halves a batch when run throws, but not for a failure that is not an item’s', async () => {
    const { lockstep } = bench.open(driver)
    const sizes: number[] = []
    const picky = combined(lockstep, {
      run: (tx, items) => {
        sizes.push(items.length)
        if (items.some(({ id }) => id === 5)) throw new Error('five!')
        return deposit(tx, items)
      },
    })
    const outcomes = await Promise.allSettled(ids(8).map((item) => picky(item)))
    expect(outcomes.map(({ status }) => status)).toEqual(ids(8).map(({ id }) => (id === 5 ? 'rejected' : 'fulfilled')))
    expect(sizes).toEqual([8, 4, 4, 2, 1, 1, 2])

    sizes.length = 0
    const broken = combined(lockstep, {
      run: async (tx, items) => {
        sizes.push(items.length)
        await tx.query('SELECT * FROM no_such_table')
        return []
      },
    })
    const all = await Promise.allSettled(ids(8).map((item) => broken(item)))
    expect(all.map((outcome) => outcome.status === 'rejected' && (outcome.reason as { code: string }).code)).toEqual(
      Array.from({ length: 8 }, () => '42P01'),
    )
    expect(sizes).toEqual([8])
  })

  test('retries a batch whole after a conflict or a terminated backend', async () => {
    const sizes: number[] = []
    const call = combined(bench.open(driver).lockstep, {
      run: async (tx, items) => {
        sizes.push(items.length)
        if (sizes.length === 1) await tx.query(`DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
        if (sizes.length === 2) {
          const results = await deposit(tx, items)
          await bench.admin.query('SELECT pg_terminate_backend($1)', [await pidOf(tx)])
          return results
        }
        return deposit(tx, items)
      },
    })
    expect(await Promise.all(ids(10).map((item) => call(item)))).toHaveLength(10)
    expect(sizes).toEqual([10, 10, 10])
    expect(await books()).toEqual({ balance: 10, deposits: 10 })
  })

  test('rolls back and rejects every call when run returns the wrong number of results', async () => {
    const call = combined(bench.open(driver).lockstep, {
      run: async (tx, items) => (await deposit(tx, items)).slice(1),
    })
    const outcomes = await Promise.allSettled(ids(4).map((item) => call(item)))
    expect(
      outcomes.every((outcome) => outcome.status === 'rejected' && outcome.reason instanceof BatchMismatchError),
    ).toBe(true)
    expect(await books()).toEqual({ balance: 0, deposits: 0 })
  })

  test('adds callers to a batch that waits for its lock, and drops those that gave up', async () => {
    const call = combined(bench.open(driver).lockstep)
    const { release: letGo } = await hold(bench.open(driver).lockstep, HOT)
    const controller = new AbortController()
    const first = call({ id: 1 })
    const given = failureOf(call({ id: 2 }, { signal: controller.signal }))
    await bench.waiters(1)
    const later = call({ id: 3 })
    controller.abort('bored')
    expect(await given).toBeInstanceOf(LockAbortedError)
    expect(await given).toMatchObject({ cause: 'bored', keys: ['Account:hot'] })
    const batches = await batchesOf(async () => {
      await letGo()
      await Promise.all([first, later])
    })
    expect(batches).toMatchObject([{ size: 2 }])
    expect(await books()).toEqual({ balance: 2, deposits: 2 })
  })

  test('stops waiting at the server when every caller has given up', async () => {
    const call = combined(bench.open(driver).lockstep)
    const { release: letGo } = await hold(bench.open(driver).lockstep, HOT)
    const controller = new AbortController()
    const calls = ids(3).map((item) => failureOf(call(item, { signal: controller.signal })))
    await bench.waiters(1)
    controller.abort()
    await Promise.all(calls)
    await bench.waiters(0)
    const next = call({ id: 9 })
    await bench.waiters(1)
    await letGo()
    expect(await next).toBe(1)
    await expect(call({ id: 10 }, { signal: controller.signal })).rejects.toBeInstanceOf(LockAbortedError)
  })

  test('ends each wait by its own waitMs', async () => {
    const call = combined(bench.open(driver).lockstep, { waitMs: 1000 })
    const { release: letGo } = await hold(bench.open(driver).lockstep, HOT)
    const error = await failureOf(call({ id: 1 }))
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect(error).toMatchObject({ keys: ['Account:hot'] })
    await letGo()
    expect(await call({ id: 2 })).toBe(1)
    expect(await books()).toEqual({ balance: 1, deposits: 1 })
  })

  test('rejects calls to a full queue, and serves other keys', async () => {
    const call = combined(bench.open(driver).lockstep, { maxQueue: 3 })
    const { release: letGo } = await hold(bench.open(driver).lockstep, HOT)
    const refused: unknown[] = []
    const stop = on('combine.refused', (message) => refused.push(message))
    const waiting = ids(3).map((item) => call(item))
    const error = await failureOf(call({ id: 4 }))
    stop()
    expect(error).toBeInstanceOf(QueueFullError)
    expect(error).toMatchObject({ waiting: 3, keys: ['Account:hot'] })
    expect(refused).toEqual([{ schema: 'lockstep', key: 'Account:hot', waiting: 3 }])
    expect(await call({ id: 5, account: 'cold' })).toBe(1)
    await letGo()
    await Promise.all(waiting)
  })

  test('limits a transaction to maxBatch items', async () => {
    const call = combined(bench.open(driver).lockstep, { maxBatch: 7 })
    const batches = await batchesOf(() => Promise.all(ids(20).map((item) => call(item))))
    expect(batches.map(({ size }) => size)).toEqual([7, 7, 6])
  })

  test('serves a cold key between two batches of a hot one', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const order: string[] = []
    const call = combined(lockstep, {
      maxBatch: 10,
      run: (tx, items) => {
        order.push(items[0]?.account ?? 'hot')
        return deposit(tx, items)
      },
    })
    const hot = ids(100).map((item) => call(item))
    const cold = call({ id: 500, account: 'cold' })
    await Promise.all([...hot, cold])
    expect(order.indexOf('cold')).toBeLessThan(3)
  })

  test('serves waiting calls on close() and refuses new ones', async () => {
    const { lockstep } = bench.open(driver)
    const call = combined(lockstep, { maxBatch: 2 })
    const calls = ids(9).map((item) => call(item))
    const closed = lockstep.close()
    await expect(call({ id: 10 })).rejects.toBeInstanceOf(LockstepClosedError)
    await closed
    expect(await Promise.all(calls)).toHaveLength(9)
    expect(await books()).toEqual({ balance: 9, deposits: 9 })
  })

  test('rejects a call inside a transaction, but not one that it schedules for later', async () => {
    const { lockstep } = bench.open(driver)
    const call = combined(lockstep)
    const ended = signal()
    let later: Promise<number> | undefined
    await lockstep.transaction({ lock: HOT }, async () => {
      await expect(call({ id: 1 })).rejects.toBeInstanceOf(NestedTransactionError)
      later = ended.given.then(() => call({ id: 2 }))
    })
    ended.give()
    expect(await later).toBe(1)
  })

  test('rejects a call inside any transaction, and serves it in detached()', async () => {
    const { lockstep, again } = bench.open(driver)
    const call = combined(lockstep)
    for (const each of [lockstep, again()]) {
      await each.transaction({}, async () => {
        const error = await failureOf(call({ id: 1 }))
        expect(error).toBeInstanceOf(NestedTransactionError)
        expect((error as Error).message).toContain('lockstep.detached(fn)')
      })
    }
    const served = lockstep.transaction({}, () => lockstep.detached(() => call({ id: 1 })))
    expect(await served).toBe(1)
  })

  test('serves other callers of a function that was made inside an open transaction', async () => {
    const { lockstep } = bench.open(driver)
    const [made, served] = [signal(), signal()]
    let call: ReturnType<typeof combined> | undefined
    const maker = lockstep.transaction({}, async () => {
      call = combined(lockstep)
      made.give()
      await served.given
    })
    await made.given
    expect(await call?.({ id: 1 })).toBe(1)
    served.give()
    await maker
  })

  test('lets run nest through its tx, and rejects the same Lockstep', async () => {
    const { lockstep } = bench.open(driver)
    const call = combined(lockstep, {
      run: (tx, items) => tx.transaction({ lock: HOT }, (inner) => deposit(inner, items)),
    })
    expect(await Promise.all(ids(3).map((item) => call(item)))).toEqual([1, 2, 3])
    const wrong = combined(lockstep, {
      run: (_tx, items) => lockstep.transaction({ lock: HOT }, (inner) => deposit(inner, items)),
    })
    expect(await failureOf(wrong({ id: 4 }))).toBeInstanceOf(NestedTransactionError)
  })

  test('does everything once for the callers of two processes', async () => {
    const calls = [1, 2, 3].map(() => combined(bench.open(driver).lockstep))
    const results = await Promise.all(ids(300).map((item) => (calls[item.id % 3] as (typeof calls)[number])(item)))
    expect(new Set(results).size).toBe(300)
    expect(await books()).toEqual({ balance: 300, deposits: 300 })
  })

  test('rejects every waiting call when the server cannot be reached', async () => {
    const { lockstep } = bench.open(driver, { url: 'postgres://nobody@127.0.0.1:1/none', retry: { attempts: 1 } })
    const call = combined(lockstep)
    const outcomes = await Promise.allSettled(ids(5).map((item) => call(item)))
    expect(outcomes.map(({ status }) => status)).toEqual(Array.from({ length: 5 }, () => 'rejected'))
  })

  test('rejects invalid options', async () => {
    const { lockstep } = bench.open(driver)
    expect(() => lockstep.combine({} as never)).toThrow(InvalidOptionError)
    for (const bad of [{ maxBatch: 0 }, { maxQueue: 1.5 }, { waitMs: -1 }, { waitMs: 0 }]) {
      expect(() => combined(lockstep, bad)).toThrow(InvalidOptionError)
    }
    const wrongKey = combined(lockstep, { key: (() => 'lock') as never })
    await expect(wrongKey({ id: 1 })).rejects.toMatchObject({ code: 'LOCKSTEP_INVALID_KEY' })
    const throwing = combined(lockstep, {
      key: () => {
        throw new TypeError('no account')
      },
    })
    await expect(throwing({ id: 1 })).rejects.toBeInstanceOf(TypeError)
  })
})
