import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, LockTimeoutError, NestedTransactionError } from '../index.ts'
import { key } from '../locks/index.ts'
import { type EventMessage, on } from '../observe/index.ts'
import { hold } from '../testing/index.ts'

const bench = await testBench()

const TRANSFER = key`Transfer:${1}`
const nothing = (): Promise<void> => Promise.resolve()

function heard(): EventMessage<'lock.wouldWait'>[] {
  const events: EventMessage<'lock.wouldWait'>[] = []
  bench.cleanUp(on('lock.wouldWait', (event) => events.push(event)))
  return events
}

describe.each(DRIVERS)('rollout, %s', (driver) => {
  test('takes no lock with off, in any isolation', async () => {
    const { lockstep } = bench.open(driver, { rollout: 'off' })
    const { release: letGo } = await hold(bench.open(driver).lockstep, TRANSFER)
    await lockstep.transaction({ lock: TRANSFER, waitMs: 0 }, nothing)
    await lockstep.transaction({ lock: TRANSFER, waitMs: 0, isolation: 'serializable' }, nothing)
    expect(await bench.locksHeld()).toBe(1)
    await letGo()
  })

  test.each(['read committed', 'serializable'] as const)(
    'blocks no caller with observe, and reports the wait that would have been, %s',
    async (isolation) => {
      const events = heard()
      const observing = bench.open(driver, { rollout: 'observe' }).lockstep
      const other = bench.open(driver, { rollout: 'observe' }).lockstep
      const { release: letGo } = await hold(observing, TRANSFER)
      await other.transaction({ lock: TRANSFER, waitMs: 0, isolation }, nothing)
      await other.transaction({ lock: key`Transfer:${2}`, waitMs: 0, isolation }, nothing)
      await letGo()
      await expect.poll(() => events).toHaveLength(1)
      expect(events[0]).toMatchObject({ schema: 'lockstep', key: TRANSFER, granted: true })
      expect(events[0]?.waitMs).toBeGreaterThan(0)
    },
  )

  test('reports waits between shared and exclusive callers only, with observe', async () => {
    const events = heard()
    const one = bench.open(driver, { rollout: 'observe' }).lockstep
    const other = bench.open(driver, { rollout: 'observe' }).lockstep
    await one.transaction({ lockShared: TRANSFER }, () => other.transaction({ lockShared: TRANSFER }, nothing))
    await one.transaction({ lockShared: key`Read:${1}` }, () => other.transaction({ lock: key`Read:${1}` }, nothing))
    await one.transaction({ lock: key`Write:${1}` }, () => other.transaction({ lockShared: key`Write:${1}` }, nothing))
    await expect.poll(() => events.map((event) => event.key).toSorted()).toEqual(['Read:1', 'Write:1'])
  })

  test('locks by the mode of each prefix', async () => {
    const rollout = { '': 'off', 'Transfer:': 'on', 'Order:': 'observe' } as const
    const events = heard()
    const one = bench.open(driver, { rollout }).lockstep
    const other = bench.open(driver, { rollout }).lockstep
    const { release: letGo } = await hold(one, [TRANSFER, key`Order:${1}`, key`Wallet:${1}`])
    await other.transaction({ lock: [key`Order:${1}`, key`Wallet:${1}`], waitMs: 0 }, nothing)
    expect(await failureOf(other.transaction({ lock: TRANSFER, waitMs: 0 }, nothing))).toBeInstanceOf(LockTimeoutError)
    await letGo()
    await expect.poll(() => events.map((event) => event.key)).toEqual(['Order:1'])
  })

  test('nests by what was declared, not by what is locked', async () => {
    const { lockstep } = bench.open(driver, { rollout: 'off' })
    await lockstep.transaction({ lock: TRANSFER }, async (tx) => {
      await tx.transaction({ lock: TRANSFER }, nothing)
      const refused = failureOf(tx.transaction({ lock: key`Other:${1}` }, nothing))
      expect(await refused).toBeInstanceOf(NestedTransactionError)
    })
  })

  test('follows rules in the database, in every process', async () => {
    const one = bench.open(driver, { rollout: 'database' }).lockstep
    const other = bench.open(driver, { rollout: 'database' }).lockstep
    const isLocked = async (): Promise<boolean> => {
      const { release: letGo } = await hold(one, TRANSFER)
      const error = await other.transaction({ lock: TRANSFER, waitMs: 0 }, nothing).then(
        () => undefined,
        (caught: unknown) => caught,
      )
      await letGo()
      return error instanceof LockTimeoutError
    }
    expect(await isLocked()).toBe(true)
    await one.rollout.set('Transfer:', 'off', { reason: 'trying it out' })
    await expect.poll(isLocked).toBe(false)
    await one.rollout.set('Transfer:', { percent: 100 })
    await expect.poll(isLocked).toBe(true)
    expect(await other.rollout.list()).toMatchObject([{ prefix: 'Transfer:', mode: { percent: 100 }, reason: '' }])
    expect(await other.rollout.unset('Transfer:')).toBe(true)
    expect(await other.rollout.unset('Transfer:')).toBe(false)
    expect(await other.rollout.list()).toEqual([])
  })

  test('switches a prefix back after a long wait, in every process', async () => {
    const warnings: Error[] = []
    const onWarning = (warning: Error): void => void warnings.push(warning)
    process.on('warning', onWarning)
    bench.cleanUp(() => process.off('warning', onWarning))
    const events: EventMessage<'rollout.switchedBack'>[] = []
    bench.cleanUp(on('rollout.switchedBack', (event) => events.push(event)))
    const options = { rollout: 'database', switchBack: { waitMs: 50 } } as const
    const one = bench.open(driver, options).lockstep
    const other = bench.open(driver, options).lockstep
    const { release: letGo } = await hold(one, TRANSFER)
    const waiting = other.transaction({ lock: TRANSFER }, nothing)
    await expect.poll(() => events).toHaveLength(1)
    expect(events[0]).toMatchObject({ schema: 'lockstep', prefix: 'Transfer:' })
    expect(events[0]?.reason).toContain('longer than 50 ms')
    await expect.poll(() => warnings.map((each) => each.name)).toContain('LockstepRollout')
    await letGo()
    await waiting
    const { release: letGoAgain } = await hold(one, TRANSFER)
    await expect
      .poll(() => other.transaction({ lock: TRANSFER, waitMs: 0 }, () => Promise.resolve('passed')))
      .toBe('passed')
    await letGoAgain()
    expect(await one.rollout.list()).toMatchObject([
      { prefix: 'Transfer:', mode: 'observe', reason: events[0]?.reason },
    ])
    await one.rollout.unset('Transfer:')
  })

  test('switches a prefix back after too many failures', async () => {
    const events: EventMessage<'rollout.switchedBack'>[] = []
    bench.cleanUp(on('rollout.switchedBack', (event) => events.push(event)))
    const tried = bench.open(driver, { rollout: 'on', switchBack: { failurePercent: 5 } }).lockstep
    const { release: letGo } = await hold(bench.open(driver).lockstep, TRANSFER)
    for (let call = 0; call < 18; call++) await tried.transaction({ lock: key`Transfer:${call + 2}` }, nothing)
    for (let call = 0; call < 2; call++) {
      expect(events).toEqual([])
      await failureOf(tried.transaction({ lock: TRANSFER, waitMs: 0 }, nothing))
    }
    await expect.poll(() => events.map((event) => event.prefix)).toEqual(['Transfer:'])
    await tried.transaction({ lock: TRANSFER, waitMs: 0 }, nothing)
    await letGo()
  })

  test('does not count errors of the function as failures', async () => {
    const events: unknown[] = []
    bench.cleanUp(on('rollout.switchedBack', (event) => events.push(event)))
    const { lockstep } = bench.open(driver, { rollout: 'on', switchBack: { failurePercent: 5, waitMs: 10_000 } })
    for (let call = 0; call < 30; call++) {
      await failureOf(lockstep.transaction({ lock: TRANSFER }, () => Promise.reject(new Error('insufficient funds'))))
    }
    expect(events).toEqual([])
  })

  test('rejects invalid settings', () => {
    expect(() => bench.open(driver, { rollout: 'sometimes' as 'on' })).toThrow(InvalidOptionError)
    expect(() => bench.open(driver, { switchBack: { waitMs: 1 } })).toThrow(InvalidOptionError)
    expect(() => bench.open(driver, { rollout: 'on', switchBack: { waitMs: -1 } })).toThrow(InvalidOptionError)
    expect(() => bench.open(driver, { rollout: 'on', strategy: 'table' })).toThrow(InvalidOptionError)
    expect(() => bench.open(driver, { slowWaitMs: 0 })).toThrow(InvalidOptionError)
  })

  test.each([
    ['a prefix that is no text', 7, 'on'],
    ['half a percent', 'Transfer:', { percent: 0.5 }],
    ['a mode that is none', 'Transfer:', 'maybe'],
  ])('rejects a rule with %s', async (_, prefix, mode) => {
    const { lockstep } = bench.open(driver)
    expect(await failureOf(lockstep.rollout.set(prefix as string, mode as 'on'))).toBeInstanceOf(InvalidOptionError)
  })
})
