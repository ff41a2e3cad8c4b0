import { describe, expect, test } from 'vitest'
import {
  DRIVERS,
  failureOf,
  note,
  pidOf,
  signal,
  type Signal,
  workbench,
} from '../../tools/server/testing/workbench.ts'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { type Lockstep, LockTimeout, NestedTransaction, TransactionEnded, TransactionRolledBack } from '../index.ts'

const database = await testDatabase()
leakGuard(database)
const elsewhere = await testDatabase()
leakGuard(elsewhere)
const bench = workbench(database)

describe.each(DRIVERS)('a transaction inside a transaction, %s', (driver) => {
  test('with a held lock it is a savepoint: what it did is undone when it throws, and the outer goes on', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const refused = new Error('no stock')
    await lockstep.transaction({ lock: ['Order:1', 'Stock:main'] }, async (tx) => {
      await note(tx, 'before')
      const pid = await pidOf(tx)
      const inner = lockstep.transaction({ lock: 'Stock:main' }, async (part) => {
        expect(await pidOf(part)).toBe(pid)
        await note(part, 'undone')
        throw refused
      })
      expect(await failureOf(inner)).toBe(refused)
      const kept = await lockstep.transaction({ lock: 'Order:1' }, async (part) => {
        await note(part, 'kept')
        return 42
      })
      expect(kept).toBe(42)
      await note(tx, 'after')
    })
    expect(await bench.notes()).toEqual(['after', 'before', 'kept'])
  })

  test('a failed statement of the inner one does not spoil the outer one', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'one')
      const inner = lockstep.transaction({ lock: 'Order:1' }, (part) => note(part, 'one'))
      expect(await failureOf(inner)).toMatchObject({ code: '23505' })
      await note(tx, 'two')
    })
    expect(await bench.notes()).toEqual(['one', 'two'])
  })

  test('when the outer one throws, what the inner ones did is undone too', async () => {
    const { lockstep } = bench.open(driver)
    const outer = lockstep.transaction({ lock: 'Order:1' }, async () => {
      await lockstep.transaction({ lock: 'Order:1' }, (part) => note(part, 'inner'))
      throw new Error('changed my mind')
    })
    await expect(outer).rejects.toThrow('changed my mind')
    expect(await bench.notes()).toEqual([])
  })

  test('without the lock it is refused, naming the keys, and the outer goes on', async () => {
    const { lockstep } = bench.open(driver)
    let ran = false
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const inner = lockstep.transaction({ lock: ['Order:1', 'Stock:a'], lockShared: 'Stock:b' }, async () => {
        ran = true
      })
      const error = await failureOf(inner)
      expect(error).toBeInstanceOf(NestedTransaction)
      expect(error).toMatchObject({ code: 'LOCKSTEP_NESTED_TRANSACTION' })
      expect((error as NestedTransaction).keys.toSorted()).toEqual(['Stock:a', 'Stock:b'])
      expect((error as NestedTransaction).message).toContain('Stock:a')
      await note(tx, 'outer')
    })
    expect(ran).toBe(false)
    expect(await bench.notes()).toEqual(['outer'])
  })

  test('also inside a transaction that has no lock at all, and inside a savepoint', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({}, async (tx) => {
      await expect(lockstep.transaction({ lock: 'Order:1' }, async () => 1)).rejects.toBeInstanceOf(NestedTransaction)
      await tx.savepoint(async () => {
        await expect(lockstep.transaction({ lock: 'Order:1' }, async () => 1)).rejects.toBeInstanceOf(NestedTransaction)
      })
    })
  })

  test('another isolation is refused; the same, or none, is not', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', isolation: 'serializable' }, async () => {
      for (const isolation of ['read committed', 'repeatable read'] as const) {
        const inner = lockstep.transaction({ lock: 'Order:1', isolation }, async () => 1)
        await expect(inner).rejects.toBeInstanceOf(NestedTransaction)
      }
      expect(await lockstep.transaction({ isolation: 'serializable' }, async (tx) => tx.isolation)).toBe('serializable')
      expect(await lockstep.transaction({}, async (tx) => tx.isolation)).toBe('serializable')
    })
  })

  test('exclusive inside shared is refused; shared inside exclusive, shared inside shared and no lock are not', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', lockShared: 'Ledger:open' }, async () => {
      const upgrade = await failureOf(lockstep.transaction({ lock: 'Ledger:open' }, async () => 1))
      expect(upgrade).toBeInstanceOf(NestedTransaction)
      expect(upgrade).toMatchObject({ keys: ['Ledger:open'] })
      expect(await lockstep.transaction({ lockShared: 'Order:1' }, async () => 'covered')).toBe('covered')
      expect(await lockstep.transaction({ lockShared: 'Ledger:open' }, async () => 'same')).toBe('same')
      expect(await lockstep.transaction({}, async () => 'none')).toBe('none')
    })
  })

  test('the third level has the locks of the first, and its failure undoes only itself', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: ['Order:1', 'Stock:main'] }, async (first) => {
      await note(first, '1')
      await lockstep.transaction({ lock: 'Order:1' }, async (second) => {
        await note(second, '2')
        const third = lockstep.transaction({ lock: 'Stock:main' }, async (tx) => {
          await note(tx, '3')
          throw new Error('third')
        })
        await expect(third).rejects.toThrow('third')
        await note(second, '2 again')
      })
    })
    expect(await bench.notes()).toEqual(['1', '2', '2 again'])
  })

  test.each(['a promise', 'a timer'])(
    'called by %s after the outer has ended, it is a transaction of its own',
    async (by) => {
      const { lockstep } = bench.open(driver)
      const ended = signal()
      const later = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const own = (): Promise<number> =>
          lockstep.transaction({ lock: 'Stock:main', isolation: 'serializable' }, async (inner) => {
            await note(inner, 'later')
            return pidOf(inner)
          })
        await note(tx, 'outer')
        return { pending: by === 'a timer' ? afterTimer(ended, own) : ended.given.then(own) }
      })
      ended.give()
      expect(await later.pending).toBeGreaterThan(0)
      expect(await bench.notes()).toEqual(['later', 'outer'])
    },
  )

  test('several at once run one at a time, and one that fails takes no other with it', async () => {
    const { lockstep } = bench.open(driver)
    const steps: string[] = []
    const part = (name: string, fails: boolean): Promise<void> =>
      lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        steps.push(`${name} in`)
        await note(tx, name)
        await tx.savepoint((inner) => note(inner, `${name} inner`))
        steps.push(`${name} out`)
        if (fails) throw new Error(name)
      })
    const results = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const all = await Promise.allSettled([part('a', false), part('b', true), part('c', false)])
      await note(tx, 'end')
      return all.map((each) => each.status)
    })
    expect(results).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(steps).toEqual(['a in', 'a out', 'b in', 'b out', 'c in', 'c out'])
    expect(await bench.notes()).toEqual(['a', 'a inner', 'c', 'c inner', 'end'])
  })

  test('a query of the outer tx beside a savepoint waits for its end, and is not undone with it', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const undone = tx.savepoint(async (inner) => {
        await note(inner, 'undone')
        throw new Error('inner')
      })
      const [savepoint] = await Promise.allSettled([undone, note(tx, 'beside')])
      expect(savepoint).toMatchObject({ status: 'rejected' })
    })
    expect(await bench.notes()).toEqual(['beside'])
  })

  test('a savepoint that nobody awaited takes its transaction with it, and does not reach the next one', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const opened = signal()
    const ended = signal()
    let stray: Promise<unknown> | undefined
    const first = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      stray = failureOf(
        tx.savepoint(async (inner) => {
          await note(inner, 'stray')
          opened.give()
          await ended.given
          throw new Error('too late to undo it')
        }),
      )
      await opened.given
    })
    expect(await failureOf(first)).toBeInstanceOf(TransactionRolledBack)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await tx.savepoint(async (inner) => {
        await note(inner, 'next')
        ended.give()
        expect(await stray).toBeInstanceOf(Error)
        await note(inner, 'still there')
      })
    })
    expect(await bench.notes()).toEqual(['next', 'still there'])
  })

  test('one that waited for its turn until the outer had ended is refused', async () => {
    const { lockstep } = bench.open(driver)
    const ended = signal()
    let ran = false
    let strays: Promise<unknown>[] = []
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const second = async (): Promise<void> => {
        ran = true
      }
      strays = [tx.savepoint(() => ended.given), tx.savepoint(second), lockstep.transaction({}, second)].map(failureOf)
    })
    expect(await failureOf(outer)).toBeInstanceOf(TransactionRolledBack)
    ended.give()
    for (const error of await Promise.all(strays)) expect(error).toBeInstanceOf(TransactionEnded)
    expect(ran).toBe(false)
  })
})

describe.each(DRIVERS)('a transaction of another Lockstep inside a transaction, %s', (driver) => {
  test('the same key in the same schema of the same database is refused', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver)
    await one.lockstep.transaction({ lock: 'Order:1', lockShared: 'Ledger:open' }, async () => {
      const same = await failureOf(two.lockstep.transaction({ lock: 'Order:1' }, async () => 1))
      expect(same).toBeInstanceOf(NestedTransaction)
      expect(same).toMatchObject({ keys: ['Order:1'] })
      const upgrade = two.lockstep.transaction({ lock: ['Stock:main', 'Ledger:open'] }, async () => 1)
      await expect(upgrade).rejects.toBeInstanceOf(NestedTransaction)
      const reader = two.lockstep.transaction({ lockShared: 'Order:1' }, async () => 1)
      await expect(reader).rejects.toBeInstanceOf(NestedTransaction)
      expect(await two.lockstep.transaction({ lockShared: 'Ledger:open' }, async () => 'both read')).toBe('both read')
      expect(await two.lockstep.transaction({ lock: 'Stock:main' }, async () => 'another')).toBe('another')
    })
  })

  test('on a pool that has no connection left, it ends with its patience and not never', async () => {
    const one = bench.open(driver, { max: 1 })
    const two = one.again()
    await one.lockstep.transaction({ lock: 'Order:1' }, async () => {
      const error = await failureOf(two.transaction({ lock: 'Order:1', waitMs: 100 }, async () => 1))
      expect([NestedTransaction.name, LockTimeout.name]).toContain((error as Error).name)
    })
    expect(await two.transaction({ lock: 'Order:1' }, async () => 'free')).toBe('free')
  })

  test('the same key in another database is another lock', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver, { url: elsewhere.url })
    const value = await one.lockstep.transaction({ lock: 'Order:1' }, () =>
      two.lockstep.transaction({ lock: 'Order:1' }, async () => 'there'),
    )
    expect(value).toBe('there')
  })

  test('the same key in another schema is another lock', async () => {
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

  test('through savepoints of both there and back again, nobody waits for itself', async () => {
    const one = bench.open(driver)
    const two = bench.open(driver, { url: elsewhere.url })
    const back = (lockstep: Lockstep): Promise<void> =>
      lockstep.transaction({ lock: 'Order:1' }, (tx) => note(tx, 'back'))
    await one.lockstep.transaction({ lock: 'Order:1' }, async (outer) => {
      await outer.savepoint(async () => {
        await two.lockstep.transaction({ lock: 'Stock:main' }, async (there) => {
          await there.savepoint(() => back(one.lockstep))
        })
      })
    })
    expect(await bench.notes()).toEqual(['back'])
  })
})

/** Calls it from a timer that was set before the signal. */
function afterTimer<T>(until: Signal, call: () => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const look = (): void => {
      let given = false
      void until.given.then(() => (given = true))
      setImmediate(() => {
        if (given) call().then(resolve, reject)
        else setTimeout(look, 1)
      })
    }
    setTimeout(look, 1)
  })
}
