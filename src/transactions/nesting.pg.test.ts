import { describe, expect, test } from 'vitest'
import {
  DRIVERS,
  failureOf,
  note,
  pidOf,
  signal,
  type Signal,
  testBench,
} from '../../tools/server/testing/workbench.ts'
import {
  InvalidOptionError,
  NestedTransactionError,
  type Transaction,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../index.ts'

const bench = await testBench()

describe.each(DRIVERS)('tx.transaction(), %s', (driver) => {
  test('rolls back only itself when it throws', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const refused = new Error('no stock')
    await lockstep.transaction({ lock: ['Order:1', 'Stock:main'] }, async (tx) => {
      await note(tx, 'before')
      const pid = await pidOf(tx)
      const inner = tx.transaction({ lock: 'Stock:main' }, async (part) => {
        expect(await pidOf(part)).toBe(pid)
        await note(part, 'undone')
        throw refused
      })
      expect(await failureOf(inner)).toBe(refused)
      const kept = await tx.transaction({ lock: 'Order:1' }, async (part) => {
        await note(part, 'kept')
        return 42
      })
      expect(kept).toBe(42)
      await note(tx, 'after')
    })
    expect(await bench.notes()).toEqual(['after', 'before', 'kept'])
  })

  test('does not abort the outer one by a failed statement', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'one')
      const inner = tx.transaction({ lock: 'Order:1' }, (part) => note(part, 'one'))
      expect(await failureOf(inner)).toMatchObject({ code: '23505' })
      await note(tx, 'two')
    })
    expect(await bench.notes()).toEqual(['one', 'two'])
  })

  test('is rolled back with the outer one', async () => {
    const { lockstep } = bench.open(driver)
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await tx.transaction({ lock: 'Order:1' }, (part) => note(part, 'inner'))
      throw new Error('changed my mind')
    })
    await expect(outer).rejects.toThrow('changed my mind')
    expect(await bench.notes()).toEqual([])
  })

  test('rejects keys that the outer one does not hold, and names them', async () => {
    const { lockstep } = bench.open(driver)
    let ran = false
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const inner = tx.transaction({ lock: ['Order:1', 'Stock:a'], lockShared: 'Stock:b' }, async () => {
        ran = true
      })
      const error = await failureOf(inner)
      expect(error).toBeInstanceOf(NestedTransactionError)
      expect(error).toMatchObject({ code: 'LOCKSTEP_NESTED_TRANSACTION' })
      expect((error as NestedTransactionError).keys.toSorted()).toEqual(['Stock:a', 'Stock:b'])
      expect((error as NestedTransactionError).message).toContain('Stock:a')
      await note(tx, 'outer')
    })
    expect(ran).toBe(false)
    expect(await bench.notes()).toEqual(['outer'])
  })

  test('rejects keys inside a transaction without locks and inside a savepoint', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({}, async (tx) => {
      await expect(tx.transaction({ lock: 'Order:1' }, async () => 1)).rejects.toBeInstanceOf(NestedTransactionError)
      await tx.savepoint(async (inner) => {
        await expect(inner.transaction({ lock: 'Order:1' }, async () => 1)).rejects.toBeInstanceOf(
          NestedTransactionError,
        )
      })
    })
  })

  test('rejects another isolation level', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', isolation: 'serializable' }, async (tx) => {
      for (const isolation of ['read committed', 'repeatable read'] as const) {
        const inner = tx.transaction({ lock: 'Order:1', isolation }, async () => 1)
        await expect(inner).rejects.toBeInstanceOf(NestedTransactionError)
      }
      expect(await tx.transaction({ isolation: 'serializable' }, async (part) => part.isolation)).toBe('serializable')
      expect(await tx.transaction({}, async (part) => part.isolation)).toBe('serializable')
    })
  })

  test('rejects an exclusive lock inside a shared one', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', lockShared: 'Ledger:open' }, async (tx) => {
      const upgrade = await failureOf(tx.transaction({ lock: 'Ledger:open' }, async () => 1))
      expect(upgrade).toBeInstanceOf(NestedTransactionError)
      expect(upgrade).toMatchObject({ keys: ['Ledger:open'] })
      expect(await tx.transaction({ lockShared: 'Order:1' }, async () => 'covered')).toBe('covered')
      expect(await tx.transaction({ lockShared: 'Ledger:open' }, async () => 'same')).toBe('same')
      expect(await tx.transaction({}, async () => 'none')).toBe('none')
    })
  })

  test('passes locks to the third level, which rolls back only itself', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: ['Order:1', 'Stock:main'] }, async (first) => {
      await note(first, '1')
      await first.transaction({ lock: 'Order:1' }, async (second) => {
        await note(second, '2')
        const third = second.transaction({ lock: 'Stock:main' }, async (tx) => {
          await note(tx, '3')
          throw new Error('third')
        })
        await expect(third).rejects.toThrow('third')
        await note(second, '2 again')
      })
    })
    expect(await bench.notes()).toEqual(['1', '2', '2 again'])
  })

  test.each(['a promise', 'a timer'])('is a transaction of its own when %s calls it after the end', async (by) => {
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
  })

  test('runs several one at a time, and fails them separately', async () => {
    const { lockstep } = bench.open(driver)
    const steps: string[] = []
    const part = (outer: Transaction, name: string, fails: boolean): Promise<void> =>
      outer.transaction({ lock: 'Order:1' }, async (tx) => {
        steps.push(`${name} in`)
        await note(tx, name)
        await tx.savepoint((inner) => note(inner, `${name} inner`))
        steps.push(`${name} out`)
        if (fails) throw new Error(name)
      })
    const results = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const all = await Promise.allSettled([part(tx, 'a', false), part(tx, 'b', true), part(tx, 'c', false)])
      await note(tx, 'end')
      return all.map((each) => each.status)
    })
    expect(results).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(steps).toEqual(['a in', 'a out', 'b in', 'b out', 'c in', 'c out'])
    expect(await bench.notes()).toEqual(['a', 'a inner', 'c', 'c inner', 'end'])
  })

  test('makes a query of the outer tx wait for the savepoint', async () => {
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

  test('fails the transaction by a savepoint that was not awaited', async () => {
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
    expect(await failureOf(first)).toBeInstanceOf(TransactionRolledBackError)
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

  test('is rejected when the outer one ends while it waits', async () => {
    const { lockstep } = bench.open(driver)
    const ended = signal()
    let ran = false
    let strays: Promise<unknown>[] = []
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const second = async (): Promise<void> => {
        ran = true
      }
      strays = [tx.savepoint(() => ended.given), tx.savepoint(second), tx.transaction({}, second)].map(failureOf)
    })
    expect(await failureOf(outer)).toBeInstanceOf(TransactionRolledBackError)
    ended.give()
    for (const error of await Promise.all(strays)) expect(error).toBeInstanceOf(TransactionEndedError)
    expect(ran).toBe(false)
  })

  test('rejects waitMs, signal and retry', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const options = { lock: 'Order:1', waitMs: 5, signal: new AbortController().signal, retry: false } as const
      const error = await failureOf(tx.transaction(options, async () => 1))
      expect(error).toBeInstanceOf(InvalidOptionError)
      expect((error as Error).message).toMatch(/`waitMs`, `signal`, `retry`.*outermost/s)
      await expect(tx.transaction({}, undefined as never)).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(tx.transaction(undefined as never, async () => 1)).rejects.toBeInstanceOf(InvalidOptionError)
    })
  })

  test('rejects a stream that the outer one has not declared', async () => {
    const { lockstep } = bench.open(driver)
    const [trades, orders] = ['trades', 'orders'].map((topic) => ({ topic, key: 'main' }))
    await lockstep.transaction({ streams: [trades!], isolation: 'serializable' }, async (tx) => {
      const event = { ...trades!, payload: 1 }
      await tx.transaction({ streams: [trades!], isolation: 'serializable' }, (part) => part.enqueue(event))
      const error = await failureOf(tx.transaction({ streams: [trades!, orders!] }, async () => 1))
      expect(error).toBeInstanceOf(NestedTransactionError)
      expect((error as Error).message).toContain('orders/main')
    })
  })

  test.each(['lease.transaction()', 'combine()', 'inbox.handle()', 'once()', 'join()'])(
    'works on the tx of %s, with the locks of that call',
    async (where) => {
      const client = bench.open(driver)
      const { lockstep } = client
      const lock = 'Order:1' as const
      const work = async (tx: Transaction): Promise<void> => {
        await tx.transaction({ lock }, (part) => note(part, 'kept'))
        const undone = tx.transaction({}, async (part) => {
          await note(part, 'undone')
          throw new Error('undone')
        })
        await expect(undone).rejects.toThrow('undone')
        await expect(tx.transaction({ lock: 'Order:2' }, async () => 1)).rejects.toBeInstanceOf(NestedTransactionError)
      }
      const event = { topic: 'trades', key: 'main', seq: 1, id: '6f2c1f2e-94a1-4c55-b1d5-3f0a5c1d6f10' }
      const run: Record<string, () => Promise<unknown>> = {
        'lease.transaction()': () => lockstep.lease('Job:1', {}, (lease) => lease.transaction({ lock }, work)),
        'combine()': () =>
          lockstep.combine({ key: () => lock, run: async (tx, items: readonly number[]) => (await work(tx), items) })(
            1,
          ),
        'inbox.handle()': () => lockstep.inbox.consumer(`consumer of ${driver}`).handle(event, { lock }, work),
        'once()': () =>
          lockstep.once(lock, { find: async () => undefined, create: async (tx) => work(tx).then(() => 'created') }),
        // There an error of a statement rolls everything back, so this one only undoes by its own throw.
        'join()': () => client.begin('', async (own) => work(await lockstep.join(own, { lock }))),
      }
      await run[where]?.()
      expect(await bench.notes()).toEqual(['kept'])
    },
  )

  test('runs its code inside the transaction, also when called from outside', async () => {
    const { lockstep } = bench.open(driver)
    const [opened, done] = [signal(), signal()]
    let passedOn: Transaction | undefined
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      passedOn = tx
      opened.give()
      await done.given
    })
    await opened.given
    for (const call of [
      passedOn!.savepoint(() => lockstep.transaction({}, async () => 1)),
      passedOn!.transaction({}, () => lockstep.transaction({}, async () => 1)),
    ]) {
      expect(await failureOf(call)).toBeInstanceOf(NestedTransactionError)
    }
    done.give()
    await outer
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
