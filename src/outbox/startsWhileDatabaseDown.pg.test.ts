import { afterEach, describe, expect, test } from 'vitest'
import { type Relay, startRelay } from '../../tools/server/relay.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { on } from '../observe/index.ts'

/** A dispatcher that is started while the database is away, as in a restart of the server. */

const bench = await testBench()

let relay: Relay | undefined

afterEach(() => relay?.stop())

describe.each(['pg', 'postgres.js'] as const)('with %s', (driver) => {
  /** A dispatcher that cannot reach the server, and has reported it. */
  async function startedInVain(topic: string) {
    relay = await startRelay(bench.url)
    await relay.stop()
    const { lockstep } = bench.open(driver, { url: relay.url })
    const arrived: string[] = []
    const stop = new AbortController()
    let forget = (): void => undefined
    const failed = new Promise<void>((resolve) => (forget = on('outbox.failed', () => resolve())))
    const running = lockstep.outbox
      .dispatcher({ name: topic, sink: (events) => void arrived.push(...events.map(({ seq }) => `#${seq}`)) })
      .run({ signal: stop.signal })
    await failed
    forget()
    return { arrived, running, stop, relay }
  }

  test('waits for the database, and delivers', async () => {
    const { arrived, running, stop, relay: way } = await startedInVain(`back-${driver}`)
    await way.start()
    const writer = bench.open(driver).lockstep
    await writer.transaction({}, (tx) => tx.enqueue({ topic: `back-${driver}`, key: 'k', payload: 1 }))
    await expect.poll(() => arrived.length).toBeGreaterThan(0)
    expect(arrived.at(-1)).toBe('#1')
    stop.abort()
    await running
  })

  test('ends by its signal while the database is down', async () => {
    const { running, stop } = await startedInVain(`never-${driver}`)
    stop.abort()
    expect(await running).toBeUndefined()
  })
})
