import { describe, expect, test } from 'vitest'
import { positionsOn } from '../../tools/server/testing/positions.ts'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, key, LeaseHeldError, LeaseLostError } from '../index.ts'

const bench = await testBench()
const { orders, position, stateOf } = positionsOn(bench)

describe.each(DRIVERS)('onceExternal, %s', (driver) => {
  test('one creates, the others wait and get the same; the beginning is seen by everyone', async () => {
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

  test('no connection is held while act runs', async () => {
    const { lockstep, query } = bench.open(driver, { max: 1 })
    const { created } = await lockstep.onceExternal(key`Position:ETH`, {
      ...position('ETH'),
      act: async () => (await query('SELECT true AS yes')).length === 1,
    })
    expect(created).toBe(true)
  })

  test('a beginning that somebody left is taken over with its id', async () => {
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

  test('an act that fails is abandoned, or left for the next where nobody says how', async () => {
    const { lockstep } = bench.open(driver)
    const refusing = { ...position('ADA'), act: () => Promise.reject(new Error('rejected by the exchange')) }
    await expect(lockstep.onceExternal(key`Position:ADA`, refusing)).rejects.toThrow('rejected by the exchange')
    expect(await stateOf('ADA')).toEqual([])
    const { abandon: _, ...leaving } = refusing
    await expect(lockstep.onceExternal(key`Position:ADA`, leaving)).rejects.toThrow('rejected by the exchange')
    expect(await stateOf('ADA')).toEqual([{ state: 'opening' }])
    expect(await lockstep.onceExternal(key`Position:ADA`, position('ADA'))).toMatchObject({ created: true })
  })

  test('a creator that has lost its lease neither finishes nor abandons; it gets what the next one made', async () => {
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

  test('a wait has an end', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const lease = await one.leases.acquire(key`Position:XRP`)
    const error = await failureOf(other.onceExternal(key`Position:XRP`, { ...position('XRP'), waitMs: 50 }))
    expect(error).toBeInstanceOf(LeaseHeldError)
    expect(error).not.toBeInstanceOf(LeaseLostError)
    await lease.release()
  })

  test('bad input', async () => {
    const { lockstep } = bench.open(driver)
    const { begin: _, ...halfDone } = position('X')
    await expect(lockstep.onceExternal(key`Position:X`, halfDone as never)).rejects.toBeInstanceOf(InvalidOptionError)
  })
})
