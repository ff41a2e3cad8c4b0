import { describe, expect, test } from 'vitest'
import { strikeNextCommit } from '../../proofs/faults/inCommit.ts'
import { positionsOn } from '../../tools/server/testing/positions.ts'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, key, LeaseHeldError, LeaseLostError } from '../index.ts'

const bench = await testBench()
const { orders, position, stateOf } = positionsOn(bench)

describe.each(DRIVERS)('onceExternal, %s', (driver) => {
  test('creates once while other callers wait, and shows its beginning to everyone', async () => {
    const [one, other] = [bench.open(driver, { max: 2 }).lockstep, bench.open(driver, { max: 2 }).lockstep]
    const [acting, goOn] = [signal(), signal()]
    const slow = {
      ...position('BTC'),
      act: async (id: string) => {
        orders.add(id)
        acting.give()
        await goOn.given
        return true
      },
    }
    const first = one.onceExternal(key`Position:BTC`, slow)
    await acting.given
    expect(await stateOf('BTC')).toEqual([{ state: 'opening' }])
    const others = [one, other, other].map((lockstep) => lockstep.onceExternal(key`Position:BTC`, position('BTC')))
    goOn.give()
    const results = await Promise.all([first, ...others])
    expect(results.map(({ created }) => created)).toEqual([true, false, false, false])
    expect(new Set(results.map(({ value }) => value))).toEqual(orders)
    expect(orders.size).toBe(1)
    expect(await one.onceExternal(key`Position:BTC`, position('BTC'))).toMatchObject({ created: false })
  })

  test('holds no connection while act runs', async () => {
    const { lockstep, query } = bench.open(driver, { max: 1 })
    const { created } = await lockstep.onceExternal(key`Position:ETH`, {
      ...position('ETH'),
      act: async () => (await query('SELECT true AS yes')).length === 1,
    })
    expect(created).toBe(true)
  })

  test('takes over an abandoned beginning with its id', async () => {
    const { lockstep } = bench.open(driver)
    await bench.admin.query(`INSERT INTO positions VALUES ('SOL', 'left-behind', 'opening')`)
    let takenOver: boolean | undefined
    const { value, created } = await lockstep.onceExternal(key`Position:SOL`, {
      ...position('SOL'),
      act: async (id, context) => {
        takenOver = context.takenOver
        orders.add(id)
        return Promise.resolve(true)
      },
    })
    expect({ value, created, takenOver }).toEqual({
      value: 'left-behind',
      created: true,
      takenOver: true,
    })
    expect([...orders]).toEqual(['left-behind'])
  })

  test('abandons a failed act, or leaves it for the next caller without abandon', async () => {
    const { lockstep } = bench.open(driver)
    const refusing = { ...position('ADA'), act: () => Promise.reject(new Error('rejected by the exchange')) }
    await expect(lockstep.onceExternal(key`Position:ADA`, refusing)).rejects.toThrow('rejected by the exchange')
    expect(await stateOf('ADA')).toEqual([])
    const { abandon: _, ...leaving } = refusing
    await expect(lockstep.onceExternal(key`Position:ADA`, leaving)).rejects.toThrow('rejected by the exchange')
    expect(await stateOf('ADA')).toEqual([{ state: 'opening' }])
    expect(await lockstep.onceExternal(key`Position:ADA`, position('ADA'))).toMatchObject({ created: true })
  })

  test('returns what the next caller made after its lease was lost', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const [acting, goOn] = [signal(), signal()]
    const first = one.onceExternal(key`Position:DOT`, {
      ...position('DOT'),
      act: async (id, { takenOver }) => {
        orders.add(id)
        if (takenOver) return true
        acting.give()
        await goOn.given
        throw new Error('late')
      },
    })
    await acting.given
    await other.leases.forceRelease(key`Position:DOT`, { by: 'test', reason: 'stuck' })
    const second = await other.onceExternal(key`Position:DOT`, position('DOT'))
    expect(second.created).toBe(true)
    goOn.give()
    const result = await first.catch((error: unknown) => error)
    expect(result).toMatchObject({ created: false, value: second.value })
    expect(await stateOf('DOT')).toEqual([{ state: 'open' }])
    expect(orders.size).toBe(1)
  })

  test('ends a wait by waitMs', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    // A caller that gives up leaves the queue in the background, so the next driver must not ask for the same lease.
    const symbol = `XRP-${driver}`
    const lease = await one.leases.acquire(key`Position:${symbol}`)
    const error = await failureOf(other.onceExternal(key`Position:${symbol}`, { ...position(symbol), waitMs: 50 }))
    expect(error).toBeInstanceOf(LeaseHeldError)
    expect(error).not.toBeInstanceOf(LeaseLostError)
    await lease.release()
  })

  test('rejects invalid options', async () => {
    const { lockstep } = bench.open(driver)
    const { begin: _, ...halfDone } = position('X')
    await expect(lockstep.onceExternal(key`Position:X`, halfDone as never)).rejects.toBeInstanceOf(InvalidOptionError)
  })

  // Once: as a part of the transaction, act would run before its beginning is committed, and when the outer one rolls back the thing
  // is there and its id is gone. It must refuse (NestedTransactionError).
  test('does nothing outside from a transaction that rolls back', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep
      .transaction({}, async () => {
        await lockstep.onceExternal(key`Position:IN`, position('IN'))
        throw new Error('something else')
      })
      .catch(() => undefined)
    await lockstep.onceExternal(key`Position:IN`, position('IN'))
    expect(orders.size).toBe(1)
  })

  // Once: without `abandon`, an act that ends because its signal was aborted is the caller's error; with it, the caller gets what the
  // next one made. Ask the lease (assertHeld) before the error is passed on.
  test('returns what the next caller made to a creator that its signal stopped', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const { abandon: _, ...plain } = position('AB')
    const [acting, made] = [signal(), signal()]
    const first = one.onceExternal(key`Position:AB`, {
      ...plain,
      ttlMs: 3000,
      act: async (id, context) => {
        orders.add(id)
        if (context.takenOver) return true
        acting.give()
        await new Promise((resolve) => context.signal.addEventListener('abort', resolve, { once: true }))
        // Otherwise it could be quicker than the next caller, and take its own beginning over.
        await made.given
        throw new Error('fetch was aborted')
      },
    })
    await acting.given
    await other.leases.forceRelease(key`Position:AB`, { by: 'test', reason: 'stuck' })
    const second = await other.onceExternal(key`Position:AB`, plain)
    made.give()
    expect(second.created).toBe(true)
    expect(await first.catch((error: unknown) => error)).toEqual({ value: second.value, created: false })
  })

  // Once: an abandon that fails hides why act failed.
  test('rejects with the error of act even if abandon fails', async () => {
    const { lockstep } = bench.open(driver)
    const error = await failureOf(
      lockstep.onceExternal(key`Position:HID`, {
        ...position('HID'),
        act: () => Promise.reject(new Error('rejected by the exchange')),
        abandon: () => Promise.reject(new Error('no such column')),
      }),
    )
    const seen = [error, ...((error as AggregateError).errors ?? []), (error as Error).cause]
    expect(seen.map(String).join()).toContain('rejected by the exchange')
  })

  test.each(['answer lost', 'request lost'] as const)(
    'creates once when the COMMIT of each step has its %s',
    async (fault) => {
      const { proxy, lockstep } = await bench.proxied(driver)
      await lockstep.transaction({}, async (tx) => tx.query('SELECT 1'))
      const plan = position('CUT')
      let struck = 0
      const strike = (): void => {
        struck++
        strikeNextCommit(proxy, fault)
      }
      const { value, created } = await lockstep.onceExternal(key`Position:CUT`, {
        ...plan,
        begin: async (tx) => {
          const id = await plan.begin(tx)
          if (struck === 0) strike()
          return id
        },
        finish: async (tx, id, outcome) => {
          const made = await plan.finish(tx, id, outcome)
          if (struck === 1) strike()
          return made
        },
      })
      expect({ created, struck }).toEqual({ created: true, struck: 2 })
      expect([...orders]).toEqual([value])
      expect(await stateOf('CUT')).toEqual([{ state: 'open' }])
    },
  )

  test('finishes with the same id when the lease is lost between act and finish', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    let second: { value: string; created: boolean } | undefined
    const first = await one.onceExternal(key`Position:MID`, {
      ...position('MID'),
      act: async (id) => {
        orders.add(id)
        if (second !== undefined) return true
        await other.leases.forceRelease(key`Position:MID`, { by: 'test', reason: 'x' })
        second = await other.onceExternal(key`Position:MID`, position('MID'))
        return true
      },
    })
    expect(second?.created).toBe(true)
    expect(first).toEqual({ value: second?.value, created: false })
    expect(orders.size).toBe(1)
  })

  test('creates once for twenty callers in three processes while leases are taken away', async () => {
    const clients = [1, 2, 3].map(() => bench.open(driver).lockstep)
    let taken = 0
    const plan = position('MANY')
    const calls = Array.from({ length: 20 }, (_, number) =>
      (clients[number % 3] ?? failing()).onceExternal(key`Position:MANY`, {
        ...plan,
        act: async (id, context) => {
          if (taken++ < 2) {
            await clients[0]?.leases.forceRelease(key`Position:MANY`, { by: 'test', reason: 'x' })
          }
          return plan.act(id, context)
        },
      }),
    )
    const results = await Promise.all(calls)
    expect(results.filter(({ created }) => created)).toHaveLength(1)
    expect(new Set(results.map(({ value }) => value))).toEqual(orders)
    expect(orders.size).toBe(1)
  })

  test('rejects after three lost leases, and keeps the beginning', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    let acts = 0
    const error = await failureOf(
      one.onceExternal(key`Position:THREE`, {
        ...position('THREE'),
        act: async (id) => {
          acts++
          orders.add(id)
          await other.leases.forceRelease(key`Position:THREE`, { by: 'test', reason: 'x' })
          return true
        },
      }),
    )
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(acts).toBe(3)
    expect(orders.size).toBe(1)
    expect(await stateOf('THREE')).toEqual([{ state: 'opening' }])
  })

  test('waits for act on close(), and finishes what was begun', async () => {
    const { lockstep } = bench.open(driver)
    const [acting, goOn] = [signal(), signal()]
    const call = lockstep.onceExternal(key`Position:CLOSE`, {
      ...position('CLOSE'),
      act: async (id) => {
        orders.add(id)
        acting.give()
        await goOn.given
        return true
      },
    })
    await acting.given
    const closed = lockstep.close()
    goOn.give()
    expect(await call).toMatchObject({ created: true })
    await closed
    expect(await stateOf('CLOSE')).toEqual([{ state: 'open' }])
  })
})

function failing(): never {
  throw new Error('no such client')
}
