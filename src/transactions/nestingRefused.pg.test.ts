import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, signal, workbench } from '../../tools/server/testing/workbench.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { InvalidOptionError, LockTimeoutError, NestedTransactionError } from '../index.ts'
import { hold } from '../testing/index.ts'

const database = await testDatabase()
const elsewhere = await testDatabase()
const bench = workbench(database)

describe.each(DRIVERS)('lockstep.transaction() inside a transaction of the same Lockstep, %s', (driver) => {
  test('is rejected with both alternatives, and the outer one continues', async () => {
    const { lockstep } = bench.open(driver)
    let ran = false
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      for (const options of [{}, { lock: 'Order:1' }, { lock: 'Stock:main' }] as const) {
        const error = await failureOf(lockstep.transaction(options, async () => (ran = true)))
        expect(error).toBeInstanceOf(NestedTransactionError)
        expect(error).toMatchObject({ code: 'LOCKSTEP_NESTED_TRANSACTION' })
        expect((error as Error).message).toMatch(/which holds Order:1.*tx\.transaction\(\).*lockstep\.detached\(fn\)/s)
      }
      await note(tx, 'outer')
    })
    expect(ran).toBe(false)
    expect(await bench.notes()).toEqual(['outer'])
  })

  test('is rejected in a savepoint, in tx.transaction(), and many turns later', async () => {
    const { lockstep } = bench.open(driver)
    const inner = async (): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve))
      expect(await failureOf(lockstep.transaction({}, async () => 1))).toBeInstanceOf(NestedTransactionError)
    }
    await lockstep.transaction({}, async (tx) => {
      await tx.savepoint(inner)
      await tx.transaction({}, inner)
      await tx.once('Order:1', { find: async () => 1, create: async () => 1 }).catch(inner)
      await inner()
    })
  })

  test('is rejected with a transaction of another Lockstep between them', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver, { url: elsewhere.url })
    await one.lockstep.transaction({}, () =>
      two.lockstep.transaction({}, async () => {
        expect(await failureOf(one.lockstep.transaction({}, async () => 1))).toBeInstanceOf(NestedTransactionError)
      }),
    )
  })

  test('is rejected with a rollout', async () => {
    const { lockstep } = bench.open(driver, { rollout: { default: 'off' } })
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      expect(await failureOf(lockstep.transaction({}, async () => 1))).toBeInstanceOf(NestedTransactionError)
      expect(await tx.transaction({ lock: 'Order:1' }, async () => 'part')).toBe('part')
    })
  })
})

describe.each(DRIVERS)('lockstep.detached(), %s', (driver) => {
  test('runs outside of the transaction, and survives its rollback', async () => {
    const { lockstep } = bench.open(driver)
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await tx.savepoint(async (part) => {
        await note(part, 'undone')
        await lockstep.detached(() =>
          lockstep.transaction({ lock: 'Stock:main', isolation: 'serializable' }, (own) => note(own, 'kept')),
        )
      })
      throw new Error('changed my mind')
    })
    await expect(outer).rejects.toThrow('changed my mind')
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('returns the value of the function', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({}, async () => {
      expect(lockstep.detached(() => 42)).toBe(42)
      expect(await lockstep.detached(() => lockstep.transaction({}, async () => 'own'))).toBe('own')
      expect(await failureOf(lockstep.transaction({}, async () => 1))).toBeInstanceOf(NestedTransactionError)
      const inner = lockstep.detached(() =>
        lockstep.transaction({}, () => lockstep.transaction({}, async () => 'nested in its own')),
      )
      expect(await failureOf(inner)).toBeInstanceOf(NestedTransactionError)
    })
    expect(lockstep.detached(() => 'outside of all')).toBe('outside of all')
    expect(() => lockstep.detached(undefined as never)).toThrow(InvalidOptionError)
  })

  test('names the caller as the holder when it waits for its lock', async () => {
    const { lockstep, again } = bench.open(driver)
    const other = again()
    await lockstep.transaction({ lock: 'Order:1' }, async () => {
      for (const waiting of [lockstep, other]) {
        const error = await failureOf(
          lockstep.detached(() => waiting.transaction({ lock: 'Order:1', waitMs: 50 }, async () => 1)),
        )
        expect(error).toBeInstanceOf(LockTimeoutError)
        expect((error as Error).message).toContain('Order:1 is held by the transaction that this call was made from.')
      }
    })
  })
})

describe.each(DRIVERS)('a transaction of another Lockstep inside a transaction, %s', (driver) => {
  test('rejects the same key in the same schema', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver)
    await one.lockstep.transaction({ lock: 'Order:1', lockShared: 'Ledger:open' }, async () => {
      const same = await failureOf(two.lockstep.transaction({ lock: 'Order:1' }, async () => 1))
      expect(same).toBeInstanceOf(NestedTransactionError)
      expect(same).toMatchObject({ keys: ['Order:1'] })
      const upgrade = two.lockstep.transaction({ lock: ['Stock:main', 'Ledger:open'] }, async () => 1)
      await expect(upgrade).rejects.toBeInstanceOf(NestedTransactionError)
      const reader = two.lockstep.transaction({ lockShared: 'Order:1' }, async () => 1)
      await expect(reader).rejects.toBeInstanceOf(NestedTransactionError)
      expect(await two.lockstep.transaction({ lockShared: 'Ledger:open' }, async () => 'both read')).toBe('both read')
      expect(await two.lockstep.transaction({ lock: 'Stock:main' }, async () => 'another')).toBe('another')
    })
  })

  test('is rejected on a pool whose only connection the caller holds', async () => {
    const one = bench.open(driver, { max: 1 })
    const [two, three] = [one.again(), one.again()]
    await one.lockstep.transaction({ lock: 'Order:1' }, async () => {
      for (const options of [{}, { lock: 'Stock:main' }, { lock: 'Order:1' }] as const) {
        const error = await failureOf(two.transaction({ ...options, waitMs: false }, async () => 1))
        expect(error).toBeInstanceOf(NestedTransactionError)
        expect((error as Error).message).toMatch(/Every connection of the pool \(1\).*Order:1/)
      }
    })
    expect(await three.transaction({ lock: 'Order:1' }, async () => 'free')).toBe('free')
  })

  test('is rejected when nested deeper than the pool is large', async () => {
    const one = bench.open(driver, { max: 2 })
    const [two, three] = [one.again(), one.again()]
    await one.lockstep.transaction({ lock: 'Order:1' }, async (first) => {
      await first.savepoint(async (inner) => {
        // A savepoint has no connection of its own.
        await inner.transaction({}, async () => {
          await two.transaction({ lock: 'Stock:main' }, async () => {
            const error = await failureOf(three.transaction({ waitMs: false }, async () => 1))
            expect(error).toBeInstanceOf(NestedTransactionError)
            expect((error as Error).message).toMatch(/pool \(2\).*Stock:main.*Order:1/)
          })
        })
      })
    })
  })

  test('rejects callers that each hold one connection and wait for another', async () => {
    const one = bench.open(driver, { max: 2 })
    const two = one.again()
    const inside = [signal(), signal()]
    const requests = inside.map(async (_, number) =>
      one.lockstep.transaction({ lock: `Order:${number}` }, async () => {
        inside[number]?.give()
        await Promise.all(inside.map((each) => each.given))
        return failureOf(two.transaction({ lock: `Stock:${number}`, waitMs: 100 }, async () => 1))
      }),
    )
    // The first to give up lets the other one in.
    const errors = (await Promise.allSettled(requests)).flatMap((each) =>
      each.status === 'fulfilled' ? [each.value] : [],
    )
    expect(errors.length).toBeGreaterThan(0)
    for (const error of errors) {
      expect(error).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'connection' })
      expect((error as Error).message).toMatch(/Stock:\d.*holds 1 of the 2 connections of this pool.*Order:\d/s)
    }
  })

  test('names the caller in the timeout of detached() on a pool of one', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    await lockstep.transaction({ lock: 'Order:1' }, async () => {
      const own = lockstep.detached(() => lockstep.transaction({ lock: 'Stock:main', waitMs: 50 }, async () => 1))
      const error = await failureOf(own)
      expect(error).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'connection' })
      expect((error as Error).message).toMatch(/Stock:main.*holds 1 of the 1 connections of this pool.*Order:1/s)
    })
  })

  test('does not blame the caller for a wait in another database', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver, { url: elsewhere.url })
    const three = bench.open(driver, { url: elsewhere.url })
    const { release: letGo } = await hold(three.lockstep, 'Order:1')
    await one.lockstep.transaction({ lock: 'Order:1' }, async () => {
      const error = await failureOf(two.lockstep.transaction({ lock: 'Order:1', waitMs: 50 }, async () => 1))
      expect(error).toBeInstanceOf(LockTimeoutError)
      expect((error as Error).message).not.toContain('made from')
    })
    await letGo()
  })

  test('accepts the same key in another database', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver, { url: elsewhere.url })
    const value = await one.lockstep.transaction({ lock: 'Order:1' }, () =>
      two.lockstep.transaction({ lock: 'Order:1' }, async () => 'there'),
    )
    expect(value).toBe('there')
  })

  test('accepts the same key in another schema', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver, { schema: 'second lockstep' })
    await two.lockstep.migrate()
    expect(two.lockstep.lockId('Order:1')).not.toBe(one.lockstep.lockId('Order:1'))
    const inside = signal()
    const leave = signal()
    const first = one.lockstep.transaction({ lock: 'Order:1' }, async () => {
      inside.give()
      await leave.given
    })
    await inside.given
    expect(await two.lockstep.transaction({ lock: 'Order:1', waitMs: 0 }, async () => 'beside')).toBe('beside')
    leave.give()
    await first
    const nested = one.lockstep.transaction({ lock: 'Order:1' }, () =>
      two.lockstep.transaction({ lock: 'Order:1' }, async () => 'inside'),
    )
    expect(await nested).toBe('inside')
  })

  test('accepts savepoints of both by the tx at hand', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver, { url: elsewhere.url })
    await one.lockstep.transaction({ lock: 'Order:1' }, async (outer) => {
      await outer.savepoint(async (inner) => {
        await two.lockstep.transaction({ lock: 'Stock:main' }, async (there) => {
          await there.savepoint(() => inner.transaction({ lock: 'Order:1' }, (tx) => note(tx, 'back')))
        })
      })
    })
    expect(await bench.notes()).toEqual(['back'])
  })
})
