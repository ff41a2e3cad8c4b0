import { describe, expect, test } from 'vitest'
import { positionsOn } from '../../tools/server/testing/positions.ts'
import { DRIVERS, failureOf, type Signal, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { key, LeaseHeldError, LockAbortedError, LockstepClosedError, QueueFullError } from '../index.ts'
import type { OnceExternalOptions } from '../index.ts'

const bench = await testBench()
const { orders, position, stateOf } = positionsOn(bench)

type Plan = OnceExternalOptions<string, string, boolean>

/** A plan whose `act` waits, and whose looks are counted. */
function slow(symbol: string): { plan: Plan; acting: Signal; goOn: Signal; looks: () => number } {
  const [acting, goOn] = [signal(), signal()]
  const plan = position(symbol)
  let looks = 0
  return {
    acting,
    goOn,
    looks: () => looks,
    plan: {
      ...plan,
      find: (tx) => plan.find(tx).finally(() => looks++),
      act: async (id, context) => {
        acting.give()
        await goOn.given
        return plan.act(id, context)
      },
    },
  }
}

describe.each(DRIVERS)('callers that wait for a creation, %s', (driver) => {
  test('takes the lease once for each process, and not for each caller', async () => {
    const symbol = `MANY-${driver}`
    const processes = [1, 2, 3].map(() => bench.open(driver).lockstep)
    const { plan, acting, goOn, looks } = slow(symbol)
    const call = (number: number): Promise<{ value: string; created: boolean }> =>
      processes[number % 3]!.onceExternal(key`Position:${symbol}`, plan)
    const first = call(0)
    await acting.given
    const before = looks()
    const others = Array.from({ length: 30 }, (_, number) => call(number))
    // Each has looked for itself, and found a beginning.
    await expect.poll(looks).toBe(before + others.length)
    goOn.give()
    const results = await Promise.all([first, ...others])
    expect(results.filter(({ created }) => created)).toHaveLength(1)
    expect(new Set(results.map(({ value }) => value))).toEqual(orders)
    const leases = await processes[0]!.leases.history(key`Position:${symbol}`)
    // A caller that had looked before the end and comes after it may take the lease once more.
    expect(leases.length).toBeLessThanOrEqual(2 * processes.length)
  })

  test('runs the find of every caller after the creation: one that finds nothing creates again', async () => {
    const symbol = `GONE-${driver}`
    const { lockstep } = bench.open(driver)
    const { plan, acting, goOn } = slow(symbol)
    const first = lockstep.onceExternal(key`Position:${symbol}`, plan)
    await acting.given
    const looked = signal()
    let looks = 0
    const second = lockstep.onceExternal(key`Position:${symbol}`, {
      ...position(symbol),
      find: async (tx) => {
        // The thing is gone again before the caller that was woken reads.
        if (++looks === 2) await bench.admin.query(`DELETE FROM positions WHERE symbol = $1`, [symbol])
        const found = await position(symbol).find(tx)
        looked.give()
        return found
      },
    })
    await looked.given
    goOn.give()
    const [made, again] = await Promise.all([first, second])
    expect([made.created, again.created]).toEqual([true, true])
    expect(again.value).not.toBe(made.value)
  })

  test('passes the turn on when the lease is lost, although act never returns', async () => {
    const symbol = `STUCK-${driver}`
    const { lockstep } = bench.open(driver)
    const { plan, acting, goOn, looks } = slow(symbol)
    const stuck = lockstep.onceExternal(key`Position:${symbol}`, plan)
    await acting.given
    const before = looks()
    const next = lockstep.onceExternal(key`Position:${symbol}`, { ...position(symbol), find: plan.find, waitMs: false })
    await expect.poll(looks).toBeGreaterThan(before)
    await bench.open(driver).lockstep.leases.forceRelease(key`Position:${symbol}`, { by: 'test', reason: 'stuck' })
    const { value, created } = await next
    expect(created).toBe(true)
    goOn.give()
    expect(await stuck).toEqual({ value, created: false })
    expect([...orders]).toEqual([value])
  })

  test('lets one caller at a time try again after a failure, and each looks a bounded number of times', async () => {
    const symbol = `FAIL-${driver}`
    const { lockstep } = bench.open(driver)
    const { plan, acting, goOn, looks } = slow(symbol)
    const refused: Plan = { ...plan, act: (...given) => plan.act(...given).then(refuse) }
    const first = failureOf(lockstep.onceExternal(key`Position:${symbol}`, refused))
    await acting.given
    const before = looks()
    const others = Array.from({ length: 12 }, () => failureOf(lockstep.onceExternal(key`Position:${symbol}`, refused)))
    await expect.poll(looks).toBe(before + others.length)
    goOn.give()
    const failures = await Promise.all([first, ...others])
    expect(failures.map(String)).toEqual(failures.map(() => 'Error: rejected by the exchange'))
    // On coming, when woken, and under the lease.
    expect(looks()).toBeLessThanOrEqual(3 * failures.length)
    expect(await stateOf(symbol)).toEqual([])
  })

  test('ends the wait of a caller by its waitMs, by its signal and on close(), and of no other caller', async () => {
    const symbol = `ENDS-${driver}`
    const { lockstep } = bench.open(driver)
    const { plan, acting, goOn, looks } = slow(symbol)
    const first = lockstep.onceExternal(key`Position:${symbol}`, { ...plan, holder: 'the creator' })
    await acting.given
    const before = looks()
    const leaving = new AbortController()
    const late = failureOf(lockstep.onceExternal(key`Position:${symbol}`, { ...plan, waitMs: 50 }))
    const aborted = failureOf(lockstep.onceExternal(key`Position:${symbol}`, { ...plan, signal: leaving.signal }))
    const closed = failureOf(lockstep.onceExternal(key`Position:${symbol}`, plan))
    await expect.poll(looks).toBe(before + 3)
    const held = await late
    expect(held).toBeInstanceOf(LeaseHeldError)
    expect(held).toMatchObject({ holder: 'the creator' })
    expect((held as LeaseHeldError).waitedMs).toBeGreaterThanOrEqual(50)
    leaving.abort()
    expect(await aborted).toBeInstanceOf(LockAbortedError)
    const closing = lockstep.close()
    expect(await closed).toBeInstanceOf(LockstepClosedError)
    goOn.give()
    expect(await first).toMatchObject({ created: true })
    await closing
  })

  test('counts waiting callers against maxQueue', async () => {
    const symbol = `FULL-${driver}`
    const { lockstep } = bench.open(driver, { maxQueue: 1 })
    const { plan, acting, goOn } = slow(symbol)
    const first = lockstep.onceExternal(key`Position:${symbol}`, plan)
    await acting.given
    const others = [1, 2].map(() => lockstep.onceExternal(key`Position:${symbol}`, plan))
    // The caller that joined the queue second.
    const refused = await Promise.any(others.map(failureOf))
    expect(refused).toBeInstanceOf(QueueFullError)
    goOn.give()
    const made = await first
    const settled = await Promise.allSettled(others)
    expect(settled.filter(({ status }) => status === 'fulfilled')).toEqual([
      { status: 'fulfilled', value: { value: made.value, created: false } },
    ])
  })
})

function refuse(): never {
  throw new Error('rejected by the exchange')
}
