import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { fresh, leaseBench, nextEvent } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, strikeNext } from '../../tools/server/testing/workbench.ts'
import { LeasePermitsDifferError } from '../index.ts'

/** The queue of waiters for a lease. */

const bench = await leaseBench()

const listening = async (): Promise<number | null> =>
  (await bench.admin.query(`SELECT FROM pg_stat_activity WHERE query ILIKE 'listen%' AND datname = current_database()`))
    .rowCount

describe.each(DRIVERS)('waiting for leases, %s', (driver) => {
  test('removes a waiter that ends with an error from the queue', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    let failed = false
    const waiting = failureOf(other.leases.acquire(name, { waitMs: false })).finally(() => (failed = true))
    await bench.queued(name, 1)
    await bench.admin.query('UPDATE lockstep.leases SET permits = 2 WHERE name = $1', [name])
    // A notification that comes before LISTEN is lost.
    await expect.poll(() => bench.admin.query('SELECT lockstep.lease_wake($1)', [name]).then(() => failed)).toBe(true)
    expect(await waiting).toBeInstanceOf(LeasePermitsDifferError)
    await bench.queued(name, 0)
    await lease.release()
  })

  test('asks again for a place in the queue after a cut', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver)
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const struck = strikeNext(proxy, 'lease_wait(', 'cut-after')
    const waiting = other.leases.acquire(name, { waitMs: false })
    await struck
    await bench.queued(name, 1)
    await lease.release()
    await (await waiting).release()
  })

  test('continues to poll when one connection is dead', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver, { silenceMs: 600_000 })
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = other.leases.acquire(name, { waitMs: false })
    await bench.queued(name, 1)
    await strikeNext(proxy, 'lease_look', 'silence')
    // As if its holder were gone: no session wakes the waiter.
    await bench.expire(name)
    await (await waiting).release()
    await lease.release()
  })

  // For a lease that is over but cannot be taken, nothing is left to wait for: a waiter that looked again at once would do so all the time.
  test('polls rarely behind a waiter that is gone', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver)
    const name = fresh()
    const lease = await one.leases.acquire(name)
    await bench.admin.query(
      `INSERT INTO lockstep.lease_waiters (name, token, holder, expires_at)
       VALUES ($1, gen_random_uuid(), 'dead', clock_timestamp() + interval '1 hour')`,
      [name],
    )
    const waiting = other.leases.acquire(name, { waitMs: false })
    await bench.queued(name, 2)
    await bench.expire(name)
    const looks: number[] = []
    proxy.onClientData((chunk) => {
      if (chunk.includes('lease_look')) looks.push(performance.now())
      return 'forward'
    })
    await expect.poll(() => looks.length).toBeGreaterThanOrEqual(3)
    expect((looks[2] ?? 0) - (looks[0] ?? 0)).toBeGreaterThan(500)
    await bench.admin.query(`DELETE FROM lockstep.lease_waiters WHERE holder = 'dead'`)
    await (await waiting).release()
    await lease.release()
  })

  test('hands several permits released at once to several waiters', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const held = await Promise.all([1, 2, 3].map(() => one.leases.acquire(name, { permits: 3 })))
    const waiting = [1, 2, 3].map(() => other.leases.acquire(name, { permits: 3, waitMs: false }))
    await bench.queued(name, 3)
    await Promise.all(held.map((lease) => lease.release()))
    const leases = await Promise.all(waiting)
    expect((await one.leases.inspect(name)).holders).toHaveLength(3)
    for (const lease of leases) await lease.release()
    await bench.queued(name, 0)
  })

  test('never has more holders than permits, with waiters and callers that ask once', async () => {
    const clients = [1, 2, 3].map(() => bench.open(driver).lockstep)
    const name = fresh()
    let [holding, most, served] = [0, 0, 0]
    const work = async (): Promise<void> => {
      most = Math.max(most, ++holding)
      for (let n = 0; n < 10; n++) await turn()
      served++
      holding--
    }
    const calls = clients.flatMap((lockstep) =>
      Array.from({ length: 20 }, async (_, number) => {
        if (number % 4 > 0) return lockstep.lease(name, { permits: 2, waitMs: false }, work)
        const lease = await lockstep.leases.tryAcquire(name, { permits: 2 })
        if (lease === undefined) return
        await work()
        await lease.release()
      }),
    )
    await Promise.all(calls)
    expect(most).toBeLessThanOrEqual(2)
    expect(served).toBeGreaterThanOrEqual(45)
    await bench.queued(name, 0)
  })

  test('enqueues a waiter again whose row was lost', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = other.leases.acquire(name, { waitMs: false })
    await bench.queued(name, 1)
    await bench.admin.query('DELETE FROM lockstep.lease_waiters WHERE name = $1', [name])
    await bench.queued(name, 1)
    await lease.release()
    await (await waiting).release()
  })

  // postgres.js listens again by itself with a listener of its own, which the first one's unlisten() does not know.
  test('listens again after the network was away, and stops listening afterwards', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver)
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = other.leases.acquire(name, { waitMs: false })
    await bench.queued(name, 1)
    await expect.poll(listening).toBe(1)
    const unreachable = nextEvent('lease.unreachable', name)
    proxy.refuse(true)
    proxy.cutAll()
    await expect.poll(listening).toBe(0)
    await unreachable
    proxy.refuse(false)
    await expect.poll(listening).toBe(1)
    await lease.release()
    await (await waiting).release()
    // postgres.js keeps a connection of its own for LISTEN until it is closed.
    if (driver === 'pg') await expect.poll(listening).toBe(0)
  })

  test('wakes the next waiter by a notification, without a poll', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep: other } = await bench.proxied(driver)
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = other.leases.acquire(name, { waitMs: false })
    await bench.queued(name, 1)
    await expect.poll(listening).toBeGreaterThan(0)
    // No look reaches the server from here on.
    proxy.onClientData((chunk) => (chunk.includes('lease_look') ? 'cut-before' : 'forward'))
    await lease.release()
    await (await waiting).release()
  })
})

// With the waiter's token, which is the lease's a moment later, every role that can connect could release the lease.
test('sends no token to a role that can only connect and listen', async () => {
  const { rows } = await bench.admin.query(`SELECT 'lockstep_' || lockstep.lock_id('listen', 'Leases:all') AS channel`)
  const role = `listener_${bench.name}`
  await bench.admin.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`)
  bench.cleanUp(() => bench.admin.query(`DROP ROLE ${role}`))
  const url = new URL(bench.url)
  url.username = role
  const stranger = await bench.session(url.href)
  const heard: string[] = []
  stranger.on('notification', ({ payload }) => heard.push(String(payload)))
  await stranger.query(`LISTEN ${rows[0].channel}`)
  const [one, other] = [bench.open('pg').lockstep, bench.open('pg').lockstep]
  const name = fresh()
  const lease = await one.leases.acquire(name)
  const waiting = other.leases.acquire(name, { waitMs: false })
  await bench.queued(name, 1)
  const waiter = await bench.admin.query(
    'SELECT place::text, token::text FROM lockstep.lease_waiters WHERE name = $1',
    [name],
  )
  await lease.release()
  const granted = await waiting
  const held = await bench.admin.query('SELECT token::text FROM lockstep.leases WHERE name = $1', [name])
  await expect.poll(() => heard.length).toBeGreaterThan(0)
  await granted.release()
  // The token that it waited with is the one that it holds the lease with.
  expect(waiter.rows[0].token).toBe(held.rows[0].token)
  expect(heard).toEqual([waiter.rows[0].place])
})
