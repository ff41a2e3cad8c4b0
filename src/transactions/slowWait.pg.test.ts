import { describe, expect, test } from 'vitest'
import { DRIVERS, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { key } from '../locks/index.ts'
import { type EventMessage, on } from '../observe/index.ts'
import { hold } from '../testing/index.ts'

const bench = await testBench()

const LOCK = key`Slow:${1}`
const nothing = (): Promise<void> => Promise.resolve()

describe.each(DRIVERS)('slow waits, %s', (driver) => {
  test('are reported at the server while they last, with key, time and holder', async () => {
    const events: EventMessage<'lock.slow'>[] = []
    bench.cleanUp(on('lock.slow', (event) => events.push(event)))
    const waiter = bench.open(driver, { slowWaitMs: 1000 }).lockstep
    // All its connections are open, so that one is idle for the question who is in the way.
    const allOpen = signal()
    let open = 0
    const warming = Array.from({ length: 4 }, () =>
      waiter.transaction({}, async () => {
        if (++open === 4) allOpen.give()
        await allOpen.given
      }),
    )
    await Promise.all(warming)
    const { release: letGo } = await hold(bench.open(driver).lockstep, LOCK)
    let [stopping, waiting] = [new AbortController(), Promise.resolve()]
    // On a busy machine, one can be slow before it has come to the server.
    do {
      stopping.abort()
      await waiting.catch(() => undefined)
      events.length = 0
      stopping = new AbortController()
      waiting = waiter.transaction({ lock: LOCK, waitMs: false, signal: stopping.signal }, nothing)
      await expect.poll(() => events.length).toBeGreaterThan(0)
    } while (events[0]?.waitedFor !== 'server')
    expect(events[0]).toMatchObject({ schema: 'lockstep', keys: [LOCK], sharedKeys: [], waitedFor: 'server' })
    expect(events[0]?.waitedMs).toBeGreaterThanOrEqual(999)
    expect(events[0]?.holders).toMatchObject([{ where: 'server', key: LOCK }])
    await letGo()
    await waiting
  })

  test('are reported in this process, with the callers ahead as the holder', async () => {
    const events: EventMessage<'lock.slow'>[] = []
    // The first one may be slow as well, with connecting.
    bench.cleanUp(on('lock.slow', (event) => void (event.waitedFor === 'process' && events.push(event))))
    const { lockstep } = bench.open(driver, { slowWaitMs: 40 })
    const letGo = signal()
    const callers = [
      lockstep.transaction({ lock: LOCK }, () => letGo.given),
      lockstep.transaction({ lock: LOCK }, nothing),
    ]
    await expect.poll(() => events).toHaveLength(1)
    expect(events[0]).toMatchObject({ waitedFor: 'process', holders: [{ where: 'process', key: LOCK }] })
    letGo.give()
    await Promise.all(callers)
  })

  test('are not reported when they end before', async () => {
    const events: unknown[] = []
    bench.cleanUp(on('lock.slow', (event) => events.push(event)))
    const { lockstep } = bench.open(driver, { slowWaitMs: 60_000 })
    await Promise.all([lockstep.transaction({ lock: LOCK }, nothing), lockstep.transaction({ lock: LOCK }, nothing)])
    expect(events).toEqual([])
  })
})
