import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { freePort } from '../../tools/server/freePort.ts'
import { fresh, leaseBench, nextEvent } from '../../tools/server/testing/leaseBench.ts'
import { type Client, DRIVERS, failureOf, signal, strikeNext } from '../../tools/server/testing/workbench.ts'
import { ConnectionLostError, type Lease, LeaseHeldError, LockTimeoutError } from '../index.ts'
import { on } from '../observe/index.ts'

const bench = await leaseBench()

/** Takes every connection of the pool. The answer releases them. */
async function exhaust({ pool }: Client, max: number): Promise<() => void> {
  const taken = await Promise.all(
    Array.from({ length: max }, () => (pool instanceof pg.Pool ? pool.connect() : pool.reserve())),
  )
  return () => {
    for (const connection of taken) connection.release()
  }
}

/** What the calls received, by the name of the error; `held` where tryAcquire() gave undefined, `granted` where it gave a lease. */
async function told(calls: readonly Promise<Lease | undefined>[]): Promise<string[]> {
  const outcomes = await Promise.allSettled(calls)
  for (const outcome of outcomes) if (outcome.status === 'fulfilled') await outcome.value?.release()
  return outcomes.map((outcome) => {
    if (outcome.status === 'fulfilled') return outcome.value === undefined ? 'held' : 'granted'
    return outcome.reason instanceof Error ? outcome.reason.constructor.name : String(outcome.reason)
  })
}

const CONNECTION_ERRORS = /^(LockTimeoutError|ConnectionLostError)$/

describe.each(DRIVERS)('a database that cannot be asked for a lease, %s', (driver) => {
  test.each([0, 300])('reports an exhausted pool as LockTimeoutError for a connection, waitMs %i', async (waitMs) => {
    const client = bench.open(driver, { max: 2 })
    await client.lockstep.leases.inspect(fresh())
    const release = await exhaust(client, 2)
    const name = fresh()
    const error = await failureOf(client.lockstep.leases.acquire(name, { waitMs }))
    const outcomes = await told([1, 2, 3].map(() => client.lockstep.leases.tryAcquire(name, { waitMs })))
    release()
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect(error).toMatchObject({ waitedFor: 'connection', keys: [name] } satisfies Partial<LockTimeoutError>)
    expect(outcomes).toEqual(['LockTimeoutError', 'LockTimeoutError', 'LockTimeoutError'])
    await (await client.lockstep.leases.acquire(name, { waitMs: false })).release()
  })

  test('reports an exhausted pool also on the first call of a Lockstep', async () => {
    const client = bench.open(driver, { max: 2 })
    const release = await exhaust(client, 2)
    const outcomes = await told([client.lockstep.leases.tryAcquire(fresh(), { waitMs: 200 })])
    release()
    expect(outcomes).toEqual(['LockTimeoutError'])
  })

  test('never reports "held" over a silent network, to the first caller or to those behind it', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 1500 })
    await lockstep.leases.inspect(fresh())
    const name = fresh()
    proxy.silence()
    const outcomes = await told(
      [0, 100, 2000, 2000, 4000, 4000].map((waitMs) => lockstep.leases.tryAcquire(name, { waitMs })),
    )
    proxy.resume()
    proxy.cutAll()
    for (const outcome of outcomes) expect(outcome).toMatch(CONNECTION_ERRORS)
  })

  test('never reports "held" to callers of a semaphore over a silent network', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 1500 })
    await lockstep.leases.inspect(fresh())
    const name = fresh()
    proxy.silence()
    const outcomes = await told([1, 2, 3, 4].map(() => lockstep.leases.tryAcquire(name, { permits: 2, waitMs: 500 })))
    proxy.resume()
    proxy.cutAll()
    for (const outcome of outcomes) expect(outcome).toMatch(CONNECTION_ERRORS)
  })

  test.each([0, 400])('reports a server that is down as ConnectionLostError, waitMs %i', async (waitMs) => {
    const url = new URL(bench.url)
    url.port = String(await freePort())
    const { lockstep } = bench.open(driver, { url: url.href })
    const name = fresh()
    const error = await failureOf(lockstep.leases.acquire(name, { waitMs }))
    expect(error).toBeInstanceOf(ConnectionLostError)
    expect(error).toMatchObject({ keys: [name] })
    expect((error as Error).cause).toBeInstanceOf(Error)
  })

  test('never reports "held" where every new connection is closed at once', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 400 })
    proxy.refuse(true)
    const name = fresh()
    const outcomes = await told([0, 400, 400].map((waitMs) => lockstep.leases.tryAcquire(name, { waitMs })))
    proxy.refuse(false)
    for (const outcome of outcomes) expect(outcome).toMatch(CONNECTION_ERRORS)
    await (await lockstep.leases.acquire(name, { waitMs: false })).release()
  })

  test('asks again within waitMs, and gets the lease when the server is back', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 2000 })
    proxy.refuse(true)
    const [one, other] = [fresh(), fresh()]
    const reported = nextEvent('lease.unreachable', one)
    const waiting = [one, one, other].map((name) => lockstep.lease(name, { waitMs: false }, () => Promise.resolve()))
    await reported
    proxy.refuse(false)
    await Promise.all(waiting)
  })

  test('names the last known holder when a wait loses its connection', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver)
    const name = fresh()
    const lease = await one.leases.acquire(name, { holder: 'worker-7' })
    const refused = nextEvent('lease.refused', name)
    const waiting = failureOf(other.leases.acquire(name, { waitMs: 4000 }))
    await refused
    proxy.silence()
    const error = await waiting
    proxy.resume()
    proxy.cutAll()
    await lease.release()
    expect(error).not.toBeInstanceOf(LeaseHeldError)
    expect((error as Error).constructor.name).toMatch(CONNECTION_ERRORS)
    expect(String(error)).toContain('worker-7')
    expect(error).toMatchObject({ keys: [name] })
  })

  test('reports "held" even if waitMs is shorter than an answer takes', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    // Opening a connection may take longer than the first answer.
    await other.leases.inspect(name)
    const outcomes = await told([1, 2, 3].map(() => other.leases.tryAcquire(name, { waitMs: 1 })))
    await lease.release()
    expect(outcomes).toEqual(['held', 'held', 'held'])
  })

  test('elects a leader when the database is back, and reports each failure before', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 200 })
    const name = fresh()
    proxy.refuse(true)
    const reported = signal()
    const errors: unknown[] = []
    const stop = on('lease.unreachable', (event) => {
      if (event.key !== name) return
      errors.push(event.error)
      if (errors.length === 6) reported.give()
    })
    const led = lockstep.leader(name, {}, async (lease) => Promise.resolve(lease.key))
    await reported.given
    stop()
    proxy.refuse(false)
    expect(await led).toBe(name)
  })

  test('reports a waiter that cannot poll, and grants the lease when the network is back', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver)
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const refused = nextEvent('lease.refused', name)
    const waiting = other.leases.acquire(name, { waitMs: false })
    await refused
    const reported = nextEvent('lease.unreachable', name)
    proxy.refuse(true)
    proxy.cutAll()
    await reported
    await lease.release()
    proxy.refuse(false)
    await (await waiting).release()
  })

  test('releases a lease whose grant was never answered', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver, { silenceMs: 1500 })
    await other.leases.inspect(fresh())
    const name = fresh()
    // Every take reaches the server, and no answer comes back.
    proxy.onClientData((chunk, connection) => {
      if (chunk.includes('lease_take')) proxy.onServerData((_, from) => (from === connection ? 'hold' : 'forward'))
      return 'forward'
    })
    const error = await failureOf(other.leases.acquire(name, { waitMs: 4000 }))
    expect(error).toBeInstanceOf(ConnectionLostError)
    proxy.onClientData(undefined)
    proxy.onServerData(undefined)
    await expect.poll(async () => (await one.leases.inspect(name)).held).toBe(false)
  })

  test.each([
    ['signal', {}],
    ['waitMs', { waitMs: 300 }],
  ])('ends an acquire over a silent network by its %s', async (by, options) => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 600_000 })
    await lockstep.leases.inspect(fresh())
    const struck = strikeNext(proxy, 'lease_take', 'silence')
    const controller = new AbortController()
    const asking = failureOf(
      lockstep.leases.acquire(fresh(), { waitMs: false, ...options, signal: controller.signal, ttlMs: 60_000 }),
    )
    await struck
    proxy.silence()
    if (by === 'signal') controller.abort('bored')
    await asking
    proxy.resume()
    proxy.cutAll()
  })
})
