import { beforeAll, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  InvalidOptionError,
  key,
  type Lockstep,
  type NestedOnceOptions,
  NestedTransactionError,
  type OnceResult,
  type Transaction,
} from '../index.ts'

const bench = await testBench()

beforeAll(() =>
  bench.admin.query(`
    CREATE TABLE positions (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, symbol text NOT NULL);
    CREATE TABLE guarded (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, symbol text NOT NULL UNIQUE)`),
)

interface Position {
  readonly id: number
  readonly symbol: string
}

function position(symbol: string, table = 'positions'): NestedOnceOptions<Position> {
  return {
    find: async (tx) => (await tx.query<Position>(`SELECT * FROM ${table} WHERE symbol = $1`, [symbol])).rows[0],
    create: async (tx) => {
      const { rows } = await tx.query<Position>(`INSERT INTO ${table} (symbol) VALUES ($1) RETURNING *`, [symbol])
      return rows[0] as Position
    },
  }
}

const open = (lockstep: Lockstep, symbol: string): Promise<OnceResult<Position>> =>
  lockstep.once(key`Position:${symbol}`, position(symbol))

describe.each(DRIVERS)('once, %s', (driver) => {
  const symbolOf = (name: string): string => `${name}-${driver}`

  test('creates once for many callers on two pools', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const symbol = symbolOf('many')
    const results = await Promise.all(
      Array.from({ length: 40 }, (_, number) => open(number % 2 === 0 ? one : other, symbol)),
    )
    expect(results.filter(({ created }) => created)).toHaveLength(1)
    expect(new Set(results.map(({ value }) => value.id)).size).toBe(1)
  })

  test('creates several without the lock (control)', async () => {
    const { lockstep } = bench.open(driver)
    const { find, create } = position(symbolOf('unlocked'))
    const met = signal()
    let looked = 0
    const naive = (): Promise<Position> =>
      lockstep.transaction({}, async (tx) => {
        const found = await find(tx)
        if (++looked === 2) met.give()
        await met.given
        return found ?? create(tx)
      })
    const [one, other] = await Promise.all([naive(), naive()])
    expect(one.id).not.toBe(other.id)
  })

  test('leaves nothing when create throws, and creates next time', async () => {
    const { lockstep } = bench.open(driver)
    const symbol = symbolOf('throws')
    const failing = {
      ...position(symbol),
      create: async (tx: Parameters<NestedOnceOptions<Position>['create']>[0]) => {
        await position(symbol).create(tx)
        throw new Error('the exchange said no')
      },
    }
    await expect(lockstep.once(key`Position:${symbol}`, failing)).rejects.toThrow('the exchange said no')
    expect(await open(lockstep, symbol)).toMatchObject({ created: true })
  })

  test('treats null as not found, and false and 0 as values', async () => {
    const { lockstep } = bench.open(driver)
    const result = await lockstep.once(key`Flag:${driver}`, {
      find: async () => Promise.resolve(false),
      create: async () => Promise.resolve(true),
    })
    expect(result).toEqual({ value: false, created: false })
    const none = await lockstep.once<number>(key`Flag:${driver}`, {
      find: async () => Promise.resolve(null),
      create: async () => Promise.resolve(0),
    })
    expect(none).toEqual({ value: 0, created: true })
  })

  test('finds what a writer without the lock inserted, by its constraint violation', async () => {
    const { lockstep } = bench.open(driver)
    const symbol = symbolOf('legacy')
    const { find, create } = position(symbol, 'guarded')
    let finds = 0
    const result = await lockstep.once(key`Position:${symbol}`, {
      find: async (tx) => {
        const found = await find(tx)
        if (++finds === 1) await bench.admin.query('INSERT INTO guarded (symbol) VALUES ($1)', [symbol])
        return found
      },
      create,
    })
    expect(result).toMatchObject({ created: false, value: { symbol } })
    expect(finds).toBe(2)
  })

  test('rejects with the violation of another constraint', async () => {
    const { lockstep } = bench.open(driver)
    const symbol = symbolOf('clash')
    await bench.admin.query('INSERT INTO guarded (symbol) VALUES ($1)', [symbol])
    const { create } = position(symbol, 'guarded')
    const error = await failureOf(
      lockstep.once(key`Position:${symbol}`, { find: async () => Promise.resolve(undefined), create }),
    )
    expect(error).toMatchObject({ code: '23505' })
  })

  test('runs tx.once() in a transaction that holds the key, and rejects one that does not', async () => {
    const { lockstep } = bench.open(driver)
    const symbol = symbolOf('nested')
    const within = (tx: Transaction): Promise<OnceResult<Position>> =>
      tx.once(key`Position:${symbol}`, position(symbol))
    const rolledBack = lockstep.transaction({ lock: key`Position:${symbol}` }, async (tx) => {
      expect(await within(tx)).toMatchObject({ created: true })
      expect(await within(tx)).toMatchObject({ created: false })
      throw new Error('changed my mind')
    })
    await expect(rolledBack).rejects.toThrow('changed my mind')
    expect(await open(lockstep, symbol)).toMatchObject({ created: true })
    await expect(lockstep.transaction({ lock: key`Other:${symbol}` }, within)).rejects.toBeInstanceOf(
      NestedTransactionError,
    )
    await expect(lockstep.transaction({ lockShared: key`Position:${symbol}` }, within)).rejects.toBeInstanceOf(
      NestedTransactionError,
    )
  })

  test('rolls back only tx.once() when its create throws', async () => {
    const { lockstep } = bench.open(driver)
    const symbol = symbolOf('part')
    const { find, create } = position(symbol)
    const lock = key`Position:${symbol}`
    await lockstep.transaction({ lock }, async (tx) => {
      const failing = async (part: Transaction): Promise<Position> => {
        await create(part)
        throw new Error('no margin')
      }
      await expect(tx.once(lock, { find, create: failing })).rejects.toThrow('no margin')
      expect(await find(tx)).toBeUndefined()
      expect(await tx.once(lock, { find, create })).toMatchObject({ created: true })
    })
    expect(await open(lockstep, symbol)).toMatchObject({ created: false })
  })

  test('finds in tx.once() what a writer without the lock inserted meanwhile', async () => {
    const { lockstep } = bench.open(driver)
    const symbol = symbolOf('nested legacy')
    const { find, create } = position(symbol, 'guarded')
    const lock = key`Position:${symbol}`
    let finds = 0
    const result = await lockstep.transaction({ lock }, (tx) =>
      tx.once(lock, {
        find: async (part) => {
          const found = await find(part)
          if (++finds === 1) await bench.admin.query('INSERT INTO guarded (symbol) VALUES ($1)', [symbol])
          return found
        },
        create,
      }),
    )
    expect(result).toMatchObject({ created: false, value: { symbol } })
  })

  test('rejects lockstep.once() and onceExternal() inside a transaction', async () => {
    const { lockstep } = bench.open(driver)
    const symbol = symbolOf('refused')
    await lockstep.transaction({ lock: key`Position:${symbol}` }, async (tx) => {
      const error = await failureOf(open(lockstep, symbol))
      expect(error).toBeInstanceOf(NestedTransactionError)
      expect((error as Error).message).toMatch(/tx\.once\(\).*lockstep\.detached\(fn\)/s)
      const { find } = position(symbol)
      const external = { find: async () => ({ done: await find(tx) }), begin: find, act: find, finish: async () => 1 }
      const nested = await failureOf(lockstep.onceExternal(key`Position:${symbol}`, external as never))
      expect(nested).toBeInstanceOf(NestedTransactionError)
      expect((nested as Error).message).toContain('committed before it acts')
      const former = await failureOf(tx.once(key`Position:${symbol}`, external as never))
      expect(former).toBeInstanceOf(InvalidOptionError)
      expect((former as Error).message).toContain('lockstep.onceExternal(key, {')
      const useless = { ...position(symbol), waitMs: 5 }
      await expect(tx.once(key`Position:${symbol}`, useless)).rejects.toBeInstanceOf(InvalidOptionError)
    })
  })

  test('rejects invalid options', async () => {
    const { lockstep } = bench.open(driver)
    await expect(lockstep.once(key`Position:x`, {} as never)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockstep.once(key`Position:x`, undefined as never)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockstep.once('lock' as never, position('x'))).rejects.toMatchObject({ code: 'LOCKSTEP_INVALID_KEY' })
  })
})
