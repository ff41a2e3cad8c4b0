import { EventEmitter } from 'node:events'
import { describe, expect, test } from 'vitest'
import {
  type Client,
  type ClientOptions,
  type DriverName,
  DRIVERS,
  failureOf,
  note,
  pidOf,
  signal,
  testBench,
} from '../../tools/server/testing/workbench.ts'
import { hold, type Proxy } from '../testing/index.ts'
import { LockAbortedError, LockstepClosedError, LockTimeoutError } from '../index.ts'
import { on } from '../observe/index.ts'

const bench = await testBench()

/** Longer than a test may take: what ends a wait in here is never the silence. */
const FOR_EVER_MS = 120_000

/** A client whose connections were all used, and lie idle. */
async function warm(
  driver: DriverName,
  options: ClientOptions & { readonly connections?: number } = {},
): Promise<{ client: Client; proxy: Proxy }> {
  const { connections = 1, ...rest } = options
  const proxy = await bench.proxy()
  const client = bench.open(driver, {
    url: proxy.url(bench.url),
    max: connections,
    silenceMs: FOR_EVER_MS,
    ...rest,
  })
  const inside = Array.from({ length: connections }, () => signal())
  await Promise.all(
    inside.map((mine, number) =>
      client.lockstep.transaction({ lock: `Warm:${number}` }, async () => {
        mine.give()
        await Promise.all(inside.map(({ given }) => given))
      }),
    ),
  )
  // So that the quick way is known.
  await client.lockstep.transaction({ lock: 'Warm:0' }, async () => undefined)
  return { client, proxy }
}

/** What is silent is closed, and new connections pass again. */
function heal(proxy: Proxy): void {
  proxy.onClientData(undefined)
  proxy.resume()
  proxy.cutAll()
}

const LEVELS = ['read committed', 'repeatable read', 'serializable'] as const

describe.each(DRIVERS)('an idle connection that is dead, %s', (driver) => {
  test.each(LEVELS)('does not delay a caller for longer than waitMs, at %s', async (isolation) => {
    const { client, proxy } = await warm(driver)
    proxy.silence()
    const error = await failureOf(
      client.lockstep.transaction({ lock: 'Order:1', isolation, waitMs: 300 }, async () => undefined),
    )
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect(error).toMatchObject({ waitedFor: 'connection', keys: ['Order:1'], holders: [] })
    heal(proxy)
  })

  test.each(LEVELS)('does not delay an abort, at %s', async (isolation) => {
    const { client, proxy } = await warm(driver)
    const controller = new AbortController()
    const [sent, reason] = [signal(), new Error('the browser has gone')]
    proxy.onClientData((_, connection) => {
      proxy.onClientData(undefined)
      connection.silence()
      sent.give()
      return 'forward'
    })
    const failed = failureOf(
      client.lockstep.transaction(
        { lock: 'Order:1', isolation, waitMs: FOR_EVER_MS, signal: controller.signal },
        async () => undefined,
      ),
    )
    await sent.given
    controller.abort(reason)
    const error = await failed
    expect(error).toBeInstanceOf(LockAbortedError)
    expect(error).toMatchObject({ cause: reason, keys: ['Order:1'] })
    heal(proxy)
  })

  test('does not delay close()', async () => {
    const { client, proxy } = await warm(driver)
    const sent = signal()
    proxy.onClientData((_, connection) => {
      proxy.onClientData(undefined)
      connection.silence()
      sent.give()
      return 'forward'
    })
    const failed = failureOf(client.lockstep.transaction({ lock: 'Order:1', waitMs: false }, async () => undefined))
    await sent.given
    await client.lockstep.close()
    expect(await failed).toBeInstanceOf(LockstepClosedError)
    heal(proxy)
  })

  test.each(LEVELS)('is left for the next one within the same budget, without a retry, at %s', async (isolation) => {
    const { client, proxy } = await warm(driver, { connections: 2, max: 8 })
    for (const connection of proxy.connections) connection.silence()
    let runs = 0
    const retried: unknown[] = []
    const stop = on('transaction.retried', (message) => retried.push(message))
    await client.lockstep.transaction({ lock: 'Order:1', isolation, waitMs: 8000, retry: false }, async (tx) => {
      runs++
      await note(tx, 'through another')
    })
    stop()
    expect(runs).toBe(1)
    expect(retried).toEqual([])
    expect(await bench.notes()).toEqual(['through another'])
    heal(proxy)
  })

  test('does not delay the very first call', async () => {
    const { client, proxy } = await warm(driver)
    const lockstep = client.again({ silenceMs: FOR_EVER_MS })
    proxy.silence()
    expect(await failureOf(lockstep.transaction({ lock: 'Order:1', waitMs: 300 }, async () => 1))).toMatchObject({
      code: 'LOCKSTEP_LOCK_TIMEOUT',
      waitedFor: 'connection',
    })
    const aborted = AbortSignal.timeout(100)
    const error = await failureOf(lockstep.transaction({ lock: 'Order:1', signal: aborted }, async () => 1))
    expect(error).toBeInstanceOf(LockAbortedError)
    heal(proxy)
  })

  test('does not delay once() and an inbox', async () => {
    const { client, proxy } = await warm(driver)
    proxy.silence()
    const find = async (): Promise<undefined> => undefined
    const once = client.lockstep.once('Position:1', { find, create: async () => 1, waitMs: 300 })
    expect(await failureOf(once)).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'connection' })
    const external = client.lockstep.onceExternal('Position:1', {
      find,
      begin: async () => 1,
      act: async () => 1,
      finish: async () => 1,
      signal: AbortSignal.timeout(100),
    })
    expect(await failureOf(external)).toBeInstanceOf(LockAbortedError)
    const event = { topic: 't', key: 'k', seq: 1, id: '0190b2a4-7c1e-7d3a-9f00-000000000001', payload: {} }
    const handled = client.lockstep.inbox.consumer('reader').handle(event, { waitMs: 300 }, async () => undefined)
    expect(await failureOf(handled)).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'connection' })
    heal(proxy)
  })
})

describe.each(DRIVERS)('a connection that falls silent while it waits for a lock, %s', (driver) => {
  test.each(LEVELS)('does not delay a caller for longer than waitMs, at %s', async (isolation) => {
    const { client, proxy } = await warm(driver, { connections: 2 })
    const { release } = await hold(bench.open('pg').lockstep, 'Order:1')
    const failed = failureOf(
      client.lockstep.transaction({ lock: 'Order:1', isolation, waitMs: 1500 }, async () => undefined),
    )
    await bench.waiters(1)
    proxy.silence()
    const error = await failed
    heal(proxy)
    await release()
    expect(error).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'server', keys: ['Order:1'] })
  })

  test.each(LEVELS)('does not delay an abort, at %s', async (isolation) => {
    const { client, proxy } = await warm(driver, { connections: 2 })
    const { release } = await hold(bench.open('pg').lockstep, 'Order:1')
    const controller = new AbortController()
    const failed = failureOf(
      client.lockstep.transaction(
        { lock: 'Order:1', isolation, waitMs: false, signal: controller.signal },
        async () => undefined,
      ),
    )
    await bench.waiters(1)
    proxy.silence()
    controller.abort()
    expect(await failed).toBeInstanceOf(LockAbortedError)
    heal(proxy)
    await release()
  })
})

describe.each(DRIVERS)('the attempts after the first, %s', (driver) => {
  test('are bounded as the first is', async () => {
    const { client, proxy } = await warm(driver)
    let runs = 0
    const failed = failureOf(
      client.lockstep.transaction({ lock: 'Order:1', waitMs: 300 }, async (tx) => {
        runs++
        await tx.query('SELECT 1')
        proxy.onClientData((chunk, connection) => {
          if (chunk.includes('ROLLBACK')) return 'forward'
          connection.silence()
          return 'hold'
        })
        throw Object.assign(new Error('a conflict'), { code: '40001' })
      }),
    )
    expect(await failed).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'connection' })
    expect(runs).toBe(1)
    heal(proxy)
  })

  test('have no more time than is left, where the function has not run', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 100 })
    await lockstep.transaction({}, async () => undefined)
    proxy.silence()
    const failed = lockstep.transaction({ lock: 'Order:1', waitMs: 600, retry: { attempts: 1000 } }, async () => 1)
    expect(await failureOf(failed)).toMatchObject({
      code: expect.stringMatching(/^LOCKSTEP_(LOCK_TIMEOUT|RETRIES_EXHAUSTED)$/),
      keys: ['Order:1'],
    })
    heal(proxy)
  })

  test('do not begin after an abort, nor does the pause before them continue', async () => {
    const { lockstep } = bench.open(driver)
    const controller = new AbortController()
    let runs = 0
    const stop = on('transaction.retried', () => controller.abort())
    const failed = lockstep.transaction(
      { lock: 'Order:1', signal: controller.signal, retry: { attempts: 1000 } },
      async (tx) => {
        runs++
        const pid = await pidOf(tx)
        await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
        await bench.gone(pid)
        await tx.query('SELECT 1')
      },
    )
    expect(await failureOf(failed)).toBeInstanceOf(LockAbortedError)
    stop()
    expect(runs).toBe(1)
  })
})

describe.each(DRIVERS)('join() on a connection that is dead, %s', (driver) => {
  test.each([300, 0])('does not delay its caller for longer than waitMs %i', async (waitMs) => {
    const { client, proxy } = await warm(driver)
    const begun = client.begin('', async (own) => {
      if (own instanceof EventEmitter) own.on('error', () => undefined)
      proxy.silence()
      const error = await failureOf(client.lockstep.join(own, { lock: 'Order:1', waitMs }))
      expect(error).toMatchObject({ code: 'LOCKSTEP_CONNECTION_LOST', keys: ['Order:1'] })
      heal(proxy)
    })
    await begun.catch(() => undefined)
    expect.assertions(1)
  })
})
