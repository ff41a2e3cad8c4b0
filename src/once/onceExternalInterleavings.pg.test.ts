import { describe, expect, test } from 'vitest'
import { strikeNextCommit } from '../../proofs/faults/inCommit.ts'
import { positionsOn } from '../../tools/server/testing/positions.ts'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { key, LeaseLostError } from '../index.ts'

const bench = await testBench()
const { orders, position, stateOf } = positionsOn(bench)

describe.each(DRIVERS)('interleavings of onceExternal, %s', (driver) => {
  // Once: as a part of the transaction, act would run before its beginning is committed, and when the outer one rolls back the thing
  // is there and its id is gone. It must refuse (NestedTransactionError).
  test('inside a transaction that rolls back nothing is done outside, or it is not done twice', async () => {
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
  test('a creator without abandon that was stopped by its signal gets what the next one made', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const { abandon: _, ...plain } = position('AB')
    const acting = signal()
    const first = one.onceExternal(key`Position:AB`, {
      ...plain,
      ttlMs: 600,
      act: async (id, context) => {
        orders.add(id)
        if (context.takenOver) return true
        acting.give()
        await new Promise((resolve) => context.signal.addEventListener('abort', resolve, { once: true }))
        throw new Error('fetch was aborted')
      },
    })
    await acting.given
    await other.leases.forceRelease(key`Position:AB`, { by: 'test', reason: 'stuck' })
    const second = await other.onceExternal(key`Position:AB`, plain)
    expect(second.created).toBe(true)
    expect(await first.catch((error: unknown) => error)).toEqual({ value: second.value, created: false })
  })

  // Once: an abandon that fails hides why act failed.
  test('an abandon that fails does not hide the error of act', async () => {
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
    'a COMMIT of each step, %s: one order, one row',
    async (fault) => {
      const proxy = await bench.proxy()
      const { lockstep } = bench.open(driver, { url: proxy.url(bench.url) })
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

  test('the lease is lost between act and finish: another finishes with the same id, and the first gets that', async () => {
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

  test('twenty callers in three processes while leases are taken away: one order', async () => {
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

  test('a lease that is lost each time is the caller’s problem after three, and the beginning stays', async () => {
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

  test('close waits for act, and what was begun is finished', async () => {
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
