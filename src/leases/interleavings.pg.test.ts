import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { ProxyConnection } from '../../tools/server/proxy.ts'
import { DRIVERS, failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  key,
  type Lease,
  LeaseBusyError,
  LeaseLostError,
  LeasePermitsDifferError,
  LeaseTransactionTooLongError,
} from '../index.ts'
import { on } from '../observe/index.ts'

const bench = await testBench()

let names = 0
const fresh = () => key`Between:${++names}`

/** Comes back when the signal is aborted. */
const lost = ({ signal: of }: Lease): Promise<void> =>
  new Promise((resolve) => of.addEventListener('abort', () => resolve(), { once: true }))

/** Whether it settles in that time. */
const settles = (pending: Promise<unknown>, ms: number): Promise<boolean> =>
  Promise.race([
    pending.then(
      () => true,
      () => true,
    ),
    sleep(ms, false, { ref: false }),
  ])

const rowOf = async (name: string): Promise<{ held: boolean } | undefined> => {
  const { rows } = await bench.admin.query<{ held: boolean }>(
    'SELECT token IS NOT NULL AND expires_at > clock_timestamp() AS held FROM lockstep.leases WHERE name = $1',
    [name],
  )
  return rows[0]
}
const isHeld = async (name: string): Promise<boolean> => (await rowOf(name))?.held === true

describe.each(DRIVERS)('interleavings of leases, %s', (driver) => {
  // Once: lease_take finds "an earlier try of ours" and answers `granted` without moving expires_at; takeLease counts the trust from
  // the later question. The row ends at (first question + ttl), the trust at (second question + 0.9 ttl).
  test('a lease whose first answer was lost is trusted no longer than its row lives', async () => {
    const proxy = await bench.proxy()
    const mine = bench.open(driver, { url: proxy.url(bench.url) }).lockstep
    const other = bench.open(driver).lockstep
    await mine.leases.inspect(fresh())
    const name = fresh()
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('lease_take')) return 'forward'
      proxy.onClientData(undefined)
      // Reaches the server; what it answers is lost.
      proxy.onServerData((_, from) => (from === connection ? 'hold' : 'forward'))
      return 'forward'
    })
    const lease = await mine.leases.acquire(name, { ttlMs: 3000 })
    proxy.silence()
    const next = await other.leases.acquire(name, { waitMs: 10_000 })
    const stillTrusted = lease.trustedMs
    await next.release()
    proxy.resume()
    proxy.cutAll()
    await lease.release()
    expect(stillTrusted).toBe(0)
  })

  // Once: token alone names a holder. A take that is delivered late takes the lease again under a token whose holder has lost it, and
  // guard and heartbeat say yes to that holder, although another one was in between. Compare the fence too.
  test('a holder that lost it commits nothing, though a late question took it again under its token', async () => {
    const proxy = await bench.proxy()
    const mine = bench.open(driver, { url: proxy.url(bench.url) }).lockstep
    const other = bench.open(driver).lockstep
    await mine.leases.inspect(fresh())
    const name = fresh()
    let stuck: ProxyConnection | undefined
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('lease_take')) return 'forward'
      proxy.onClientData(undefined)
      stuck = connection
      return 'hold'
    })
    const lease = await mine.leases.acquire(name, { ttlMs: 3000 })
    expect(stuck).toBeDefined()
    await other.leases.forceRelease(name, { by: 'operator', reason: 'test' })
    const between = await other.leases.acquire(name)
    expect(between.fence).toBeGreaterThan(lease.fence)
    await between.release()
    stuck?.release()
    await expect.poll(() => isHeld(name)).toBe(true)
    const committed = await lease
      .transaction({}, (tx) => note(tx, 'stale'))
      .then(
        () => true,
        () => false,
      )
    await other.leases.forceRelease(name, { by: 'operator', reason: 'test' })
    await lease.release()
    expect(committed).toBe(false)
  })

  // Once: giveBack gives up after 0.4 s and says nothing; the lease stays for its whole ttl, which can be a day.
  test('giving back goes on after a network that was away for a second', async () => {
    const proxy = await bench.proxy()
    const mine = bench.open(driver, { url: proxy.url(bench.url) }).lockstep
    const name = fresh()
    const lease = await mine.leases.acquire(name, { ttlMs: 600_000 })
    proxy.refuse(true)
    proxy.cutAll()
    const released = lease.release()
    await sleep(1000)
    proxy.refuse(false)
    await released
    await expect.poll(() => isHeld(name)).toBe(false)
  })

  // Once: close() waits for no acquire() that is on its way, nor for the giving back that follows. Whoever ends its pool after it, as
  // it should, leaves a ghost for the ttl.
  test('an acquire that is on its way when it closes leaves no holder behind', async () => {
    const proxy = await bench.proxy()
    const client = bench.open(driver, { url: proxy.url(bench.url) })
    await client.lockstep.leases.inspect(fresh())
    const name = fresh()
    const asked = signal()
    let held: ProxyConnection | undefined
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('lease_take')) return 'forward'
      proxy.onClientData(undefined)
      held = connection
      asked.give()
      return 'hold'
    })
    const acquiring = failureOf(client.lockstep.leases.acquire(name))
    await asked.given
    const ended = client.end()
    // Where close() does not wait, the pool is being ended by now.
    await sleep(50)
    held?.release()
    await ended
    await acquiring
    await sleep(600)
    expect(await isHeld(name)).toBe(false)
  })

  // Once: the first question is bounded by the ttl and four tries, not by waitMs or the signal: up to a minute by default.
  test('an acquire over a silent network ends with its signal', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { url: proxy.url(bench.url), silenceMs: 5000 })
    await lockstep.leases.inspect(fresh())
    proxy.silence()
    const controller = new AbortController()
    const asking = failureOf(lockstep.leases.acquire(fresh(), { waitMs: 300, signal: controller.signal, ttlMs: 4000 }))
    setTimeout(() => controller.abort('bored'), 100)
    const ended = await settles(asking, 1500)
    proxy.resume()
    proxy.cutAll()
    await asking
    expect(ended).toBe(true)
  })

  // Once: the silence that destroys the connection is not extended by the wait that was allowed.
  test('force release waits for as long as it was told, also longer than silenceMs', async () => {
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { silenceMs: 300 }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const [open, end] = [signal(), signal()]
    const work = lease.transaction({}, async () => {
      open.give()
      await end.given
    })
    await open.given
    const forced = other.leases.forceRelease(name, { by: 'x', reason: 'y', waitMs: 4000 })
    setTimeout(() => end.give(), 1200)
    const result = await forced.catch((error: unknown) => error)
    end.give()
    await work
    await lease.release()
    expect(result).toEqual({ released: 1 })
  })

  // Once: a look for blockers waits for a second connection, and forceRelease waits for the look while it holds the only one: until
  // the silence, 30 s by default, has destroyed it.
  test('force release with terminate on a pool of one comes back', async () => {
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { max: 1, silenceMs: 4000 }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const [open, end] = [signal(), signal()]
    const work = lease.transaction({}, async () => {
      open.give()
      await end.given
    })
    await open.given
    const forced = failureOf(other.leases.forceRelease(name, { by: 'x', reason: 'y', waitMs: 400, terminate: true }))
    const back = await settles(forced, 2200)
    end.give()
    await work
    const error = await forced
    await lease.release()
    expect(error).toBeInstanceOf(LeaseBusyError)
    expect(back).toBe(true)
  })

  // Once: terminateBlockers spares every session that waits for a lock, and a holder that is stuck behind a lock is the usual case.
  test('force release with terminate ends a holder that is itself waiting for a lock', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const blocker = await bench.admin.connect()
    await blocker.query('BEGIN')
    await blocker.query(`INSERT INTO notes VALUES ('contended')`)
    const lease = await one.leases.acquire(name)
    const work = failureOf(lease.transaction({ retry: false }, (tx) => note(tx, 'contended')))
    await expect
      .poll(async () => (await bench.admin.query('SELECT 1 FROM pg_locks WHERE NOT granted')).rowCount)
      .toBe(1)
    const result = await other.leases
      .forceRelease(name, { by: 'x', reason: 'y', waitMs: 1500, terminate: true })
      .catch((error: unknown) => error)
    await blocker.query('ROLLBACK')
    blocker.release()
    await work.catch(() => undefined)
    await lease.release()
    expect(result).toEqual({ released: 1 })
  })

  // Once: PostgreSQL arms transaction_timeout within a transaction only where it is not armed already; a larger one of the role's
  // stays as it is. Set it to 0 first.
  test('the bound of a transaction holds also where the role has a larger one', async () => {
    const { rows: known } = await bench.admin.query(`SELECT 1 FROM pg_settings WHERE name = 'transaction_timeout'`)
    // Before 17 there is no such bound: one that sits idle is ended all the same.
    if (known.length === 0) return
    await bench.admin.query(`ALTER ROLE postgres SET transaction_timeout = '1h'`)
    const { lockstep } = bench.open(driver)
    try {
      const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 600 })
      const work = lease.transaction({}, (tx) => tx.query('SELECT pg_sleep(2.5)')).catch((error: unknown) => error)
      const ended = await settles(work, 1800)
      const error = await work
      await lease.release()
      expect(ended).toBe(true)
      expect(error).toBeInstanceOf(LeaseTransactionTooLongError)
    } finally {
      await bench.admin.query('ALTER ROLE postgres RESET transaction_timeout')
    }
  })

  // Once: next_fence reads the epoch without looking whether the life is this database's: after a dump and restore under a running
  // process the sequence of the dump goes on in the old epoch.
  test('a fence does not go back when the database is replaced by an older copy', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const before = await lockstep.leases.acquire(name)
    await before.release()
    const kept = await bench.admin.query<{ database: string; at: string }>(
      `SELECT database, (SELECT last_value FROM lockstep.fences)::text AS at FROM lockstep.incarnation`,
    )
    await bench.admin.query(
      `UPDATE lockstep.incarnation SET database = 1; UPDATE lockstep.epoch SET database = 1; SELECT setval('lockstep.fences', 1)`,
    )
    const after = await lockstep.leases.acquire(name)
    await after.release()
    await bench.admin.query(`SELECT setval('lockstep.fences', ${kept.rows[0]?.at} + 1000)`)
    await bench.admin.query(`UPDATE lockstep.incarnation SET database = ${kept.rows[0]?.database}`)
    expect(after.fence).toBeGreaterThan(before.fence)
  })

  // Once: rows of an earlier number of permits let two callers that differ take two slots at once, each unseen by the other.
  test('two that differ in permits never both hold', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const both = await Promise.all([1, 2].map(() => one.leases.acquire(name, { permits: 2 })))
    for (const lease of both) await lease.release()
    // As lease_take does it for a caller with one permit, just before its COMMIT.
    const taking = await bench.admin.connect()
    await taking.query('BEGIN')
    await taking.query(`SELECT pg_advisory_xact_lock(lockstep.lock_id('lease', $1))`, [name])
    await taking.query(
      `UPDATE lockstep.leases SET token = gen_random_uuid(), permits = 1, fence = lockstep.next_fence(),
              expires_at = clock_timestamp() + interval '30 seconds' WHERE name = $1 AND slot = 0`,
      [name],
    )
    const second = other.leases.tryAcquire(name, { permits: 2 }).catch((error: unknown) => error)
    await bench.waiters(1)
    await taking.query('COMMIT')
    taking.release()
    expect(await second).toBeInstanceOf(LeasePermitsDifferError)
    expect((await one.leases.inspect(name)).holders).toHaveLength(1)
  })

  // Once: onClose is asked after the lease was granted; what closed in between is not heard, and close() waits for ever.
  test('a leader whose Lockstep closes in the moment of its election is told', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    let closed: Promise<void> | undefined
    let mine: Lease | undefined
    const resign = signal()
    const stop = on('lease.acquired', (event) => {
      if (event.key === name) closed ??= lockstep.close()
    })
    const led = lockstep.leader(name, {}, async (lease) => {
      mine = lease
      await Promise.race([lost(lease), resign.given])
    })
    const told = await settles(led, 1000)
    stop()
    resign.give()
    await led.catch(() => undefined)
    await closed
    expect(mine === undefined || told).toBe(true)
  })

  // Once: a connect that fails has no code where the peer just closes, or where connectionTimeoutMillis is over; it is not taken
  // for a lost connection, and the leader ends.
  test('a leader stands also while the network closes every new connection', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { url: proxy.url(bench.url) })
    proxy.refuse(true)
    const elected = signal()
    const led = lockstep
      .leader(fresh(), {}, async () => Promise.resolve(elected.give()))
      .then(
        () => undefined,
        (error: unknown) => error,
      )
    const ended = await settles(led, 500)
    proxy.refuse(false)
    expect(ended ? await led : undefined).toBeUndefined()
    await elected.given
    expect(await led).toBeUndefined()
  })

  test('a holder whose release is answered by nobody is let go all the same', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { url: proxy.url(bench.url) })
    const name = fresh()
    const lease = await lockstep.leases.acquire(name)
    proxy.onServerData(() => {
      proxy.onServerData(undefined)
      return 'cut-before'
    })
    await lease.release()
    expect(await isHeld(name)).toBe(false)
    expect(await lockstep.leases.history(name)).toHaveLength(1)
  })

  test('force release waits through heartbeats of the holder, and nothing is committed after it', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 900 })
    const [open, end] = [signal(), signal()]
    const work = lease.transaction({}, async (tx) => {
      open.give()
      await end.given
      await note(tx, `before ${driver}`)
    })
    await open.given
    const forced = other.leases.forceRelease(name, { by: 'x', reason: 'y', waitMs: 5000 })
    const beaten = signal()
    const stop = on('lease.renewed', (event) => event.key === name && event.outcome === 'renewed' && beaten.give())
    await beaten.given
    stop()
    end.give()
    await work
    expect(await forced).toEqual({ released: 1 })
    expect(await failureOf(lease.transaction({}, (tx) => note(tx, 'after')))).toBeInstanceOf(LeaseLostError)
    expect(await bench.notes()).toEqual([`before ${driver}`])
    await lease.release()
  })
})
