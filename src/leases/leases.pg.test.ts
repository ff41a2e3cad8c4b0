import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { fresh, leaseBench } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note, pidOf, signal } from '../../tools/server/testing/workbench.ts'
import {
  InvalidOptionError,
  LeaseHeldError,
  LeaseLostError,
  LeasePermitsDifferError,
  LockAbortedError,
  LockstepClosedError,
} from '../index.ts'

const bench = await leaseBench()

const nothing = (): Promise<void> => Promise.resolve()

describe.each(DRIVERS)('leases, %s', (driver) => {
  test('rejects a second holder, and names the first', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { holder: 'first', metadata: { step: 3 } })
    expect(lease.fence).toBeGreaterThan(0n)
    lease.assertHeld()
    expect(lease.trustedMs).toBeGreaterThan(0)
    const error = await failureOf(other.leases.acquire(name))
    expect(error).toBeInstanceOf(LeaseHeldError)
    expect(error).toMatchObject({ holder: 'first', keys: [name], waitedMs: 0 })
    expect((error as LeaseHeldError).leftMs).toBeGreaterThan(0)
    expect(await other.leases.tryAcquire(name)).toBeUndefined()
    expect(await other.leases.inspect(name)).toMatchObject({
      held: true,
      holders: [{ holder: 'first', metadata: { step: 3 }, fence: lease.fence }],
      waiters: [],
    })
    await lease.release()
    await lease.release()
    const next = await other.leases.acquire(name)
    expect(next.fence).toBeGreaterThan(lease.fence)
    await next.release()
    expect(await other.leases.inspect(name)).toMatchObject({ held: false, holders: [] })
    expect(await one.leases.history(name)).toMatchObject([
      { ending: 'released' },
      { ending: 'released', holder: 'first' },
    ])
  })

  test('releases the lease when the function returns and when it throws', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    expect(await lockstep.lease(name, {}, async (lease) => Promise.resolve(lease.key))).toBe(name)
    await expect(lockstep.lease(name, {}, () => Promise.reject(new Error('no')))).rejects.toThrow('no')
    await lockstep.lease(name, {}, nothing)
    expect(await lockstep.leases.history(name)).toHaveLength(3)
  })

  test('releases the lease at the end of an await using block', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    {
      await using lease = await lockstep.leases.acquire(name)
      lease.assertHeld()
    }
    expect((await lockstep.leases.inspect(name)).held).toBe(false)
  })

  test('keeps leases past their ttl by heartbeats', async () => {
    const { lockstep } = bench.open(driver, { max: 2 })
    const leases = await Promise.all([1, 2, 3].map(() => lockstep.leases.acquire(fresh(), { ttlMs: 2000 })))
    const other = bench.open(driver).lockstep
    const keys = leases.map((lease) => lease.key)
    const { rows } = await bench.admin.query(
      'SELECT max(expires_at)::text AS end FROM lockstep.leases WHERE name = ANY($1)',
      [keys],
    )
    const isOver = async (): Promise<unknown> =>
      (await bench.admin.query('SELECT clock_timestamp() > $1::timestamptz AS over', [rows[0].end])).rows[0].over
    do {
      for (const each of keys) expect(await other.leases.tryAcquire(each)).toBeUndefined()
      await sleep(50)
    } while (!(await isOver()))
    for (const lease of leases) {
      expect(lease.signal.aborted).toBe(false)
      await lease.release()
    }
  })

  test('hands an expired lease over with a higher fence', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 30_000, holder: 'gone' })
    await bench.expire(name)
    const next = await other.leases.acquire(name)
    expect(next.fence).toBeGreaterThan(lease.fence)
    const error = await failureOf(lease.transaction({}, (tx) => note(tx, 'late')))
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'taken away', fence: lease.fence })
    expect(lease.signal.aborted).toBe(true)
    expect(lease.signal.reason).toBe(error)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    // Releasing what it does not have takes nothing from the next.
    await lease.release()
    next.assertHeld()
    expect((await other.leases.inspect(name)).holders).toMatchObject([{ fence: next.fence }])
    await next.release()
    expect(await bench.notes()).toEqual([])
    expect((await one.leases.history(name)).map(({ ending }) => ending)).toEqual(['released', 'expired'])
  })

  test('refuses other holders while a transaction of the holder is open, even past the ttl', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 30_000 })
    await lease.transaction({}, async (tx) => {
      await bench.expire(name)
      expect(await other.leases.tryAcquire(name)).toBeUndefined()
      await note(tx, `guarded-${driver}`)
    })
    expect(await bench.notes()).toEqual([`guarded-${driver}`])
    const next = await other.leases.acquire(name)
    await next.release()
    await lease.release()
  })

  test('sends heartbeats while a transaction of the holder is open', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 3000 })
    await lease.transaction({}, async (tx) => {
      // Without a heartbeat it only becomes less.
      let before = lease.trustedMs
      const grows = (): boolean => {
        const now = lease.trustedMs
        const grown = now > before
        before = now
        return grown
      }
      await expect.poll(grows).toBe(true)
      await note(tx, `beating-${driver}`)
    })
    await lease.release()
  })

  test('ends a transaction that is idle past the trust with LeaseLostError', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 400, maxHoldMs: 100 })
    const error = await failureOf(
      lease.transaction({}, async (tx) => {
        await bench.gone(await pidOf(tx))
        await note(tx, 'never')
      }),
    )
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'held too long' })
    expect(await bench.notes()).toEqual([])
    await lease.release()
  })

  test('serves waiters in order of arrival', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver, { max: 3 }).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const served: number[] = []
    const waiters = Array.from({ length: 12 }, (_, number) =>
      other.lease(name, { waitMs: false, holder: `w${number}` }, async () => {
        served.push(number)
        // Free for a moment between two of them, and not for a caller outside of the queue.
        expect(await one.leases.tryAcquire(name)).toBeUndefined()
      }),
    )
    await expect.poll(async () => (await one.leases.inspect(name)).waiters.length).toBe(12)
    const { waiters: seen } = await one.leases.inspect(name)
    expect(seen.map(({ holder }) => holder)).toEqual(Array.from({ length: 12 }, (_, n) => `w${n}`))
    await lease.release()
    await Promise.all(waiters)
    expect(served).toEqual(Array.from({ length: 12 }, (_, number) => number))
  })

  test('ends a wait by waitMs, by signal and by close(), and removes it from the queue', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver)]
    const name = fresh()
    const lease = await one.leases.acquire(name, { holder: 'owner' })
    const late = await failureOf(other.lockstep.leases.acquire(name, { waitMs: 80 }))
    expect(late).toBeInstanceOf(LeaseHeldError)
    expect(late).toMatchObject({ holder: 'owner' })
    expect((late as LeaseHeldError).waitedMs).toBeGreaterThanOrEqual(75)
    const controller = new AbortController()
    const aborted = failureOf(other.lockstep.leases.acquire(name, { waitMs: false, signal: controller.signal }))
    const closed = failureOf(other.lockstep.leases.acquire(name, { waitMs: false }))
    await expect.poll(async () => (await one.leases.inspect(name)).waiters.length).toBe(2)
    controller.abort('bored')
    expect(await aborted).toBeInstanceOf(LockAbortedError)
    await other.lockstep.close()
    expect(await closed).toBeInstanceOf(LockstepClosedError)
    await expect.poll(async () => (await one.leases.inspect(name)).waiters.length).toBe(0)
    await lease.release()
  })

  test('skips a waiter that is gone', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    await lockstep.leases.inspect(name)
    await bench.admin.query(
      `INSERT INTO lockstep.lease_waiters (name, token, holder, expires_at)
       VALUES ($1, gen_random_uuid(), 'dead', clock_timestamp() + interval '1 hour')`,
      [name],
    )
    const ahead = await failureOf(lockstep.leases.acquire(name))
    expect(ahead).toMatchObject({ code: 'LOCKSTEP_LEASE_HELD', holder: undefined })
    await bench.admin.query('UPDATE lockstep.lease_waiters SET expires_at = clock_timestamp() WHERE name = $1', [name])
    const lease = await lockstep.leases.acquire(name, { waitMs: false })
    await lease.release()
  })

  test('grants as many permits as there are, and rejects another number', async () => {
    const lockstep = bench.open(driver).lockstep
    const other = bench.open(driver).lockstep
    const name = fresh()
    const results = await Promise.all(
      Array.from({ length: 10 }, (_, number) =>
        (number % 2 === 0 ? lockstep : other).leases.tryAcquire(name, { permits: 3 }),
      ),
    )
    const held = results.filter((lease) => lease !== undefined)
    expect(held).toHaveLength(3)
    expect(new Set(held.map(({ fence }) => fence)).size).toBe(3)
    await expect(other.leases.acquire(name, { permits: 2 })).rejects.toBeInstanceOf(LeasePermitsDifferError)
    await held[0]?.release()
    const again = await other.leases.acquire(name, { permits: 3 })
    for (const lease of [...held, again]) await lease.release()
  })

  test('elects the next leader when the first resigns', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const [elected, resign] = [signal(), signal()]
    const controller = new AbortController()
    const order: string[] = []
    const first = one.leader(name, {}, async () => {
      order.push('first')
      elected.give()
      await resign.given
      return 'done'
    })
    await elected.given
    const second = other.leader(name, {}, async () => Promise.resolve(order.push('second')))
    const third = one.leader(name, { signal: controller.signal }, nothing)
    await expect.poll(async () => (await one.leases.inspect(name)).waiters.length).toBe(2)
    controller.abort()
    expect(await third).toBeUndefined()
    resign.give()
    expect(await first).toBe('done')
    await second
    expect(order).toEqual(['first', 'second'])
  })

  test('rejects invalid options and keys', async () => {
    const { lockstep } = bench.open(driver)
    const bad = [{ ttlMs: 10 }, { ttlMs: 1.5 }, { permits: 0 }, { holder: '' }, { waitMs: -1 }, { maxHoldMs: 0 }]
    for (const options of [...bad, { metadata: 'x' as never }, { signal: {} as never }, null as never]) {
      await expect(lockstep.leases.acquire(fresh(), options)).rejects.toBeInstanceOf(InvalidOptionError)
    }
    await expect(lockstep.leases.acquire('lock' as never)).rejects.toMatchObject({ code: 'LOCKSTEP_INVALID_KEY' })
    await expect(lockstep.lease(fresh(), {}, undefined as never)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockstep.leases.list({ limit: 0 })).rejects.toBeInstanceOf(InvalidOptionError)
  })

  // After a restore under a running process, the sequence of the dump goes on in the old epoch.
  test('never reuses a fence when the database is replaced by an older copy', async () => {
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
})
