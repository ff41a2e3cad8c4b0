import { setImmediate as turn } from 'node:timers/promises'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { type Client, DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { LockAbortedError, LockTimeoutError } from '../index.ts'
import { hold } from '../testing/index.ts'

const bench = await testBench()
const ISOLATIONS = ['read committed', 'serializable'] as const

/** Takes connections out of the pool, as an application does beside Lockstep. */
async function takeOut({ pool }: Client, count: number): Promise<() => void> {
  const taken = await Promise.all(
    Array.from({ length: count }, () => (pool instanceof pg.Pool ? pool.connect() : pool.reserve())),
  )
  return () => taken.forEach((each) => each.release())
}

describe.each(DRIVERS)('an exhausted pool, %s', (driver) => {
  test.each(['waitMs', 'signal'] as const)(
    'ends the wait of the second of two callers in one tick by its %s',
    async (limit) => {
      const client = bench.open(driver, { max: 2 })
      const { lockstep } = client
      await Promise.all([1, 2].map(() => lockstep.transaction({}, (tx) => tx.query('SELECT 1'))))
      const returnToPool = await takeOut(client, 1)
      const [inside, finish] = [signal(), signal()]
      const controller = new AbortController()
      const first = lockstep.transaction({ lock: 'Order:1' }, async () => {
        inside.give()
        await finish.given
      })
      const second = failureOf(
        lockstep.transaction(
          { lock: 'Stock:1', ...(limit === 'waitMs' ? { waitMs: 100 } : { signal: controller.signal }) },
          async () => 'ran',
        ),
      )
      await inside.given
      if (limit === 'signal') controller.abort()
      expect(await second).toBeInstanceOf(limit === 'waitMs' ? LockTimeoutError : LockAbortedError)
      finish.give()
      await first
      returnToPool()
      expect(await lockstep.transaction({ lock: 'Stock:1' }, async () => 'well')).toBe('well')
    },
  )

  test('rejects with waitMs: 0', async () => {
    const client = bench.open(driver, { max: 2 })
    await client.lockstep.transaction({}, async () => undefined)
    const returnToPool = await takeOut(client, 2)
    const error = await failureOf(client.lockstep.transaction({ lock: 'Order:1', waitMs: 0 }, async () => 'ran'))
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect(error).toMatchObject({ waitedFor: 'connection' })
    returnToPool()
    expect(await client.lockstep.transaction({ lock: 'Order:1', waitMs: 0 }, async () => 'ran')).toBe('ran')
  })

  test.each(['Order:1', 'Stock:1'] as const)(
    'rejects a nested call of a second Lockstep on %s, and both close',
    async (lock) => {
      const { lockstep, again } = bench.open(driver, { max: 1 })
      const inner = again()
      await lockstep.transaction({ lock: 'Order:1' }, async () => {
        const error = await failureOf(inner.transaction({ lock, waitMs: 100 }, async () => 'ran'))
        expect((error as { code: string }).code).toMatch(/^LOCKSTEP_(NESTED_TRANSACTION|LOCK_TIMEOUT)$/)
        const aborted = inner.transaction({ lock, signal: AbortSignal.timeout(50) }, async () => 'ran')
        expect((await failureOf(aborted)) as Error).toHaveProperty('code')
      })
      await Promise.all([lockstep.close(), inner.close()])
    },
  )

  test('returns from every close()', async () => {
    const client = bench.open(driver)
    const { release: letGo } = await hold(client.lockstep, 'Order:1')
    const first = client.lockstep.close()
    await turn()
    const second = client.lockstep.close()
    await letGo()
    const third = client.lockstep.close()
    await Promise.all([first, second, third])
  })

  test.each(ISOLATIONS)('queues at the server each time it asks with a pool of one, %s', async (isolation) => {
    const lock = 'Hot:1'
    const { lockstep, proxy } = await bench.proxied(driver, { max: 1 })
    await lockstep.transaction({ lock, isolation }, async () => undefined)
    const { release } = await hold(bench.open(driver).lockstep, lock)
    let queued = 0
    proxy.onClientData((chunk) => {
      // Longer than a moment.
      if (/lock_timeout = [1-9]\d/.test(chunk.toString('latin1'))) queued++
      return 'forward'
    })
    proxy.roundTrips = 0
    const waiting = lockstep.transaction({ lock, isolation, waitMs: false }, async () => 'granted')
    await expect.poll(() => proxy.roundTrips).toBeGreaterThan(40)
    // A question, a wait, and the end of the transaction.
    expect(queued).toBeGreaterThan(40 / 5)
    await release()
    expect(await waiting).toBe('granted')
  })

  test.each(ISOLATIONS)('serves a pool of one beside two busy processes, %s', async (isolation) => {
    const small = bench.open(driver, { max: 1 })
    const stop = new AbortController()
    const lock = 'Hot:1'
    const busy = [bench.open(driver), bench.open(driver)].flatMap(({ lockstep }) =>
      [1, 2].map(async () => {
        while (!stop.signal.aborted) {
          await lockstep.transaction({ lock, isolation }, (tx) => tx.query('SELECT pg_sleep(0.005)'))
        }
      }),
    )
    try {
      for (let grants = 0; grants < 20; grants++) {
        await small.lockstep.transaction({ lock, isolation, waitMs: false }, async () => undefined)
      }
    } finally {
      stop.abort()
      await Promise.all(busy)
    }
  })
})
