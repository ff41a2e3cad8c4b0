import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { key, LeasePermitsDifferError } from '../index.ts'

const bench = await testBench()

let names = 0
const fresh = () => key`Waiting:${++names}`

/** Whether it settles in that time. */
const settles = (pending: Promise<unknown>, ms: number): Promise<boolean> =>
  Promise.race([
    pending.then(
      () => true,
      () => true,
    ),
    sleep(ms, false, { ref: false }),
  ])

const rowsOf = async (name: string): Promise<number | null> =>
  (await bench.admin.query('SELECT 1 FROM lockstep.lease_waiters WHERE name = $1', [name])).rowCount
const inLine = (name: string, count: number): Promise<void> => expect.poll(() => rowsOf(name)).toBe(count)
const expire = (name: string): Promise<unknown> =>
  bench.admin.query('UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name = $1', [name])
const listening = async (): Promise<number | null> =>
  (
    await bench.admin.query(
      `SELECT 1 FROM pg_stat_activity WHERE query ILIKE 'listen%' AND datname = current_database()`,
    )
  ).rowCount

describe.each(DRIVERS)('waiting for leases, %s', (driver) => {
  // Once: #try's catch calls #leave while `trying` is still true, and so nobody takes the row out of the line: for six seconds it is
  // in the way of everybody behind it.
  // By chance the waiter comes before those that are to be there before it: then it is set up once more.
  test('a waiter that ends with an error leaves the line', { retry: 3 }, async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = failureOf(other.leases.acquire(name, { waitMs: 20_000 }))
    await inLine(name, 1)
    await expire(name)
    const others = [
      await one.leases.acquire(name, { permits: 2 }),
      await bench.open(driver).lockstep.leases.tryAcquire(name, { permits: 2 }),
    ]
    await bench.admin.query('SELECT lockstep.lease_wake($1)', [name])
    const error = await waiting
    await sleep(500)
    const left = await rowsOf(name)
    for (const each of [...others, lease]) await each?.release()
    expect(error).toBeInstanceOf(LeasePermitsDifferError)
    expect(left).toBe(0)
  })

  // Once: a waiter whose standing in line was not answered is told so at once, and its row stays in the way of the others.
  test('a cut while it goes in line is tried again: asking twice is what the token is for', async () => {
    const proxy = await bench.proxy()
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { url: proxy.url(bench.url) }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const struck = signal()
    proxy.onClientData((chunk) => {
      if (!chunk.includes('lease_wait(')) return 'forward'
      proxy.onClientData(undefined)
      struck.give()
      return 'cut-after'
    })
    const waiting = other.leases.acquire(name, { waitMs: 10_000 }).catch((error: unknown) => error)
    await struck.given
    await sleep(300)
    await lease.release()
    const got = await waiting
    if (!(got instanceof Error)) await (got as typeof lease).release()
    expect(got).not.toBeInstanceOf(Error)
  })

  // Once: a look may take silenceMs, 30 s by default, on one dead connection; nobody looks meanwhile, and after six seconds the rows
  // are passed over.
  test('one dead connection does not stop the line', async () => {
    const proxy = await bench.proxy()
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { url: proxy.url(bench.url), silenceMs: 8000 }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const struck = signal()
    const waiting = other.leases.acquire(name, { waitMs: 20_000 })
    await inLine(name, 1)
    await sleep(1200)
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('lease_look')) return 'forward'
      proxy.onClientData(undefined)
      connection.silence()
      struck.give()
      return 'forward'
    })
    await struck.given
    // As if its holder were gone: nobody calls.
    await expire(name)
    const served = await settles(waiting, 4000)
    await (await waiting).release()
    await lease.release()
    expect(served).toBe(true)
  })

  // Once: left_ms is 0 for a lease that is over but cannot be taken (its first waiter is gone, or its last transaction is open), so
  // whoever is behind looks every 5 ms, with an UPDATE each.
  test('whoever stands behind a waiter that is gone does not look all the time', async () => {
    const proxy = await bench.proxy()
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { url: proxy.url(bench.url) }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    await bench.admin.query(
      `INSERT INTO lockstep.lease_waiters (name, token, holder, expires_at)
       VALUES ($1, gen_random_uuid(), 'dead', clock_timestamp() + interval '4 seconds')`,
      [name],
    )
    const waiting = other.leases.acquire(name, { waitMs: 20_000 })
    await inLine(name, 2)
    await expire(name)
    await sleep(1100)
    proxy.roundTrips = 0
    await sleep(1000)
    const looks = proxy.roundTrips
    await (await waiting).release()
    await lease.release()
    expect(looks).toBeLessThan(20)
  })

  // Once: LISTEN and UNLISTEN are sent without a bound, and close() waits for them.
  test('close comes back also when the connection that listens is dead', async () => {
    const proxy = await bench.proxy()
    const one = bench.open(driver).lockstep
    const client = bench.open(driver, { url: proxy.url(bench.url), silenceMs: 500 })
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = failureOf(client.lockstep.leases.acquire(name, { waitMs: 20_000 }))
    await inLine(name, 1)
    await expect.poll(listening).toBeGreaterThan(0)
    await sleep(100)
    proxy.silence()
    const closed = client.lockstep.close()
    const back = await settles(closed, 5000)
    proxy.resume()
    proxy.cutAll()
    await closed
    await waiting
    await lease.release()
    expect(back).toBe(true)
  })

  // Once: as above, while LISTEN is on its way.
  test('close comes back also when LISTEN is never answered', async () => {
    const proxy = await bench.proxy()
    const one = bench.open(driver).lockstep
    const client = bench.open(driver, { url: proxy.url(bench.url), silenceMs: 500 })
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const struck = signal()
    proxy.onClientData((chunk, connection) => {
      if (!/listen "?lockstep_/i.test(chunk.toString('latin1'))) return 'forward'
      proxy.onClientData(undefined)
      connection.silence()
      struck.give()
      return 'forward'
    })
    const waiting = failureOf(client.lockstep.leases.acquire(name, { waitMs: 20_000 }))
    await struck.given
    await inLine(name, 1)
    const closed = client.lockstep.close()
    const back = await settles(closed, 5000)
    proxy.cutAll()
    await closed
    await waiting
    await lease.release()
    expect(back).toBe(true)
  })

  // Once: close() does not wait until those that it turned away are out of the line.
  // Whoever ends its pool then, as it should, leaves them in the way of the others for six seconds.
  test('close waits until those that it turned away are out of the line', async () => {
    const proxy = await bench.proxy()
    const one = bench.open(driver).lockstep
    const { lockstep } = bench.open(driver, { url: proxy.url(bench.url) })
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = failureOf(lockstep.leases.acquire(name, { waitMs: 20_000 }))
    await inLine(name, 1)
    const leaving = signal()
    let goOn = (): void => undefined
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('lease_leave(')) return 'forward'
      proxy.onClientData(undefined)
      goOn = () => connection.release()
      leaving.give()
      return 'hold'
    })
    const closed = lockstep.close()
    await leaving.given
    const early = await settles(closed, 500)
    goOn()
    await Promise.all([closed, waiting])
    await inLine(name, 0)
    await lease.release()
    expect(early).toBe(false)
  })

  test('several permits given back at once go to several waiters within a second', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const held = await Promise.all([1, 2, 3].map(() => one.leases.acquire(name, { permits: 3 })))
    const waiting = [1, 2, 3].map(() => other.leases.acquire(name, { permits: 3, waitMs: 20_000 }))
    await inLine(name, 3)
    await sleep(300)
    const begun = performance.now()
    await Promise.all(held.map((lease) => lease.release()))
    const next = await Promise.all(waiting)
    expect(performance.now() - begun).toBeLessThan(1300)
    expect((await one.leases.inspect(name)).holders).toHaveLength(3)
    for (const lease of next) await lease.release()
    expect(await rowsOf(name)).toBe(0)
  })

  test('never more holders than permits, over releases, waiters and those that ask once', async () => {
    const clients = [1, 2, 3].map(() => bench.open(driver).lockstep)
    const name = fresh()
    let [holding, most, served] = [0, 0, 0]
    const work = async (): Promise<void> => {
      most = Math.max(most, ++holding)
      await sleep(5)
      served++
      holding--
    }
    const calls = clients.flatMap((lockstep) =>
      Array.from({ length: 20 }, async (_, number) => {
        if (number % 4 > 0) return lockstep.lease(name, { permits: 2, waitMs: 30_000 }, work)
        const lease = await lockstep.leases.tryAcquire(name, { permits: 2 })
        if (lease === undefined) return
        await work()
        await lease.release()
      }),
    )
    await Promise.all(calls)
    expect(most).toBeLessThanOrEqual(2)
    expect(served).toBeGreaterThanOrEqual(45)
    await inLine(name, 0)
  })

  test('a waiter whose row was lost goes in line again', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = other.leases.acquire(name, { waitMs: 20_000 })
    await inLine(name, 1)
    await bench.admin.query('DELETE FROM lockstep.lease_waiters WHERE name = $1', [name])
    await inLine(name, 1)
    await lease.release()
    await (await waiting).release()
  })

  // Once: it listens again by itself with a listener of its own, which the first one's unlisten() does not know.
  test('after the network was away the calls are heard again, and the listening ends', async () => {
    const proxy = await bench.proxy()
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { url: proxy.url(bench.url) }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = other.leases.acquire(name, { waitMs: 20_000 })
    await inLine(name, 1)
    await expect.poll(listening).toBe(1)
    proxy.refuse(true)
    proxy.cutAll()
    await expect.poll(listening).toBe(0)
    await sleep(300)
    proxy.refuse(false)
    await expect.poll(listening).toBe(1)
    await lease.release()
    await (await waiting).release()
    // postgres.js listens on a connection of its own, as long as it lives.
    if (driver === 'pg') await expect.poll(listening).toBe(0)
  })
})

// Once: the call had the waiter's token, which is the lease's a moment later: every role that can connect could have released the lease.
test('a role that may only connect, and listens, hears no token', async () => {
  const { rows } = await bench.admin.query(`SELECT 'lockstep_' || lockstep.lock_id('listen', 'Leases:all') AS channel`)
  const role = `listener_${bench.name}`
  await bench.admin.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`)
  const url = new URL(bench.url)
  url.username = role
  const stranger = new pg.Client({ connectionString: url.href })
  const heard: string[] = []
  stranger.on('notification', ({ payload }) => heard.push(String(payload)))
  try {
    await stranger.connect()
    await stranger.query(`LISTEN ${rows[0].channel}`)
    const [one, other] = [bench.open('pg').lockstep, bench.open('pg').lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = other.leases.acquire(name, { waitMs: 20_000 })
    await inLine(name, 1)
    const waiter = await bench.admin.query(
      'SELECT place::text, token::text FROM lockstep.lease_waiters WHERE name = $1',
      [name],
    )
    await lease.release()
    const next = await waiting
    const held = await bench.admin.query('SELECT token::text FROM lockstep.leases WHERE name = $1', [name])
    await expect.poll(() => heard.length).toBeGreaterThan(0)
    await next.release()
    // The token that it waited with is the one that it holds the lease with.
    expect(waiter.rows[0].token).toBe(held.rows[0].token)
    expect(heard).toEqual([waiter.rows[0].place])
  } finally {
    await stranger.end()
    await bench.admin.query(`DROP ROLE ${role}`)
  }
})

test.each(DRIVERS)('the call is heard by its waiter: it does not wait for the next look, %s', async (driver) => {
  const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
  const name = fresh()
  const first = await one.leases.acquire(name)
  const waited: number[] = []
  let held = first
  for (let round = 0; round < 10; round++) {
    const waiting = other.leases.acquire(name, { waitMs: 20_000 })
    await inLine(name, 1)
    await expect.poll(listening).toBeGreaterThan(0)
    const begun = performance.now()
    await held.release()
    held = await waiting
    waited.push(performance.now() - begun)
  }
  await held.release()
  // Without the call, every one of them waits for the next look, a second after the last.
  expect(Math.min(...waited)).toBeLessThan(500)
})
