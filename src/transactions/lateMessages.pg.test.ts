import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, strikeNext, testBench } from '../../tools/server/testing/workbench.ts'
import { LockAbortedError, LockTimeoutError } from '../index.ts'
import { hold } from '../testing/index.ts'

/** Connections that fall silent, and cancel requests that arrive late. */

const bench = await testBench()
/** Long enough for an answer over loopback, short enough to wait for. */
const SILENCE_MS = 300

describe.each(DRIVERS)('a connection that falls silent, %s', (driver) => {
  test.each([{ attempts: 1 }, { attempts: 3 }])(
    'in the readiness check does not stop later calls, with %o',
    async (retry) => {
      const proxy = await bench.proxy()
      // What is being opened is left to postgres.js to give up.
      const client = bench.open(driver, { url: proxy.url(bench.url), silenceMs: SILENCE_MS, connectSeconds: 1 })
      await client.query('SELECT 1')
      proxy.silence()
      const during = client.lockstep.transaction({ waitMs: 2 * SILENCE_MS, retry }, async () => 'ran')
      expect((await failureOf(during)) as Error).toHaveProperty('code')
      proxy.resume()
      try {
        expect(await client.lockstep.transaction({ waitMs: 10_000 }, async () => 'ran')).toBe('ran')
      } finally {
        // What was opened in the silence would never end.
        proxy.cutAll()
      }
    },
  )

  test('in the search for holders ends the caller’s wait, and frees the key', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: SILENCE_MS })
    await lockstep.transaction({}, async () => undefined)
    const { release: letGo } = await hold(bench.open(driver).lockstep, 'Order:1')
    const asked = strikeNext(proxy, 'pg_locks', 'silence')
    const timedOut = failureOf(lockstep.transaction({ lock: 'Order:1', waitMs: 50 }, async () => 'ran'))
    await asked
    await letGo()
    const next = lockstep.transaction({ lock: 'Order:1', waitMs: 5000 }, async () => 'ran')
    const error = await timedOut
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect((error as LockTimeoutError).holders).toEqual([])
    expect(await next).toBe('ran')
  })
})

const WAITER = `
  SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

describe.each(DRIVERS)('a cancel that comes late, %s', (driver) => {
  test('cancels no other statement', async () => {
    const client = await bench.proxied(driver, { max: 3, silenceMs: SILENCE_MS })
    const { proxy, lockstep } = client
    // From the second transaction on, the connection is known to be direct.
    await Promise.all([1, 2, 3].map(() => lockstep.transaction({}, (tx) => tx.query('SELECT pg_sleep(0.01)'))))
    const { release: letGo } = await hold(bench.open(driver).lockstep, 'Order:1')
    const stuck = strikeNext(proxy, 'pg_cancel_backend', 'hold')
    const controller = new AbortController()
    const aborted = failureOf(lockstep.transaction({ lock: 'Order:1', signal: controller.signal }, async () => 'ran'))
    await bench.waiters(1)
    const waiting = await bench.admin.query<{ pid: number }>(WAITER)
    const pid = waiting.rows[0]?.pid ?? 0
    controller.abort()
    const late = await stuck
    await letGo()
    expect(await aborted).toBeInstanceOf(LockAbortedError)
    // The cancel is still aimed at this backend, and can arrive at any time: no other client must ever use it.
    await bench.gone(pid)
    const innocents = [1, 2, 3].map(() => client.query('SELECT pg_sleep(0.05)'))
    late.release()
    await Promise.all(innocents)
  })

  test('is not sent when the pool had no connection for it', async () => {
    const client = await bench.proxied(driver, { max: 2 })
    const { proxy, lockstep } = client
    await Promise.all([1, 2].map(() => lockstep.transaction({}, (tx) => tx.query('SELECT 1'))))
    const [busy, finish] = [signal(), signal()]
    const { release: letGo } = await hold(bench.open(driver).lockstep, 'Order:1')
    let sent = 0
    proxy.onClientData((chunk) => {
      if (chunk.includes('pg_cancel_backend')) sent++
      return 'forward'
    })
    const other = lockstep.transaction({ lock: 'Stock:1' }, async () => {
      busy.give()
      await finish.given
    })
    await busy.given
    const controller = new AbortController()
    const aborted = failureOf(lockstep.transaction({ lock: 'Order:1', signal: controller.signal }, async () => 'ran'))
    await bench.waiters(1)
    controller.abort()
    await letGo()
    expect(await aborted).toBeInstanceOf(LockAbortedError)
    finish.give()
    await other
    expect(await Promise.all([1, 2].map(() => lockstep.transaction({}, async () => 'well')))).toEqual(['well', 'well'])
    expect(sent).toBe(0)
  })
})
