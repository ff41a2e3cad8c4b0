import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  InvalidOptionError,
  key,
  LeaseBusyError,
  LeaseHeldError,
  LeaseLostError,
  LeasePermitsDifferError,
  LockAbortedError,
  LockstepClosedError,
} from '../index.ts'

const bench = await testBench()

let names = 0
const fresh = () => key`Instance:${++names}`
const nothing = (): Promise<void> => Promise.resolve()

describe.each(DRIVERS)('leases, %s', (driver) => {
  test('one holder; the other is told at once who has it', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { holder: 'first', metadata: { step: 3 } })
    expect(lease.fence).toBeGreaterThan(0n)
    lease.assertHeld()
    expect(lease.trustedMs).toBeGreaterThan(25_000)
    const error = await failureOf(other.leases.acquire(name))
    expect(error).toBeInstanceOf(LeaseHeldError)
    expect(error).toMatchObject({ holder: 'first', keys: [name], waitedMs: 0 })
    expect((error as LeaseHeldError).leftMs).toBeGreaterThan(28_000)
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

  test('lease() gives back when the function ends, and when it throws', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    expect(await lockstep.lease(name, {}, async (lease) => Promise.resolve(lease.key))).toBe(name)
    await expect(lockstep.lease(name, {}, () => Promise.reject(new Error('no')))).rejects.toThrow('no')
    await lockstep.lease(name, {}, nothing)
    expect(await lockstep.leases.history(name)).toHaveLength(3)
  })

  test('await using gives back at the end of the block', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    {
      await using lease = await lockstep.leases.acquire(name)
      lease.assertHeld()
    }
    expect((await lockstep.leases.inspect(name)).held).toBe(false)
  })

  test('it is kept alive past its ttl, and many leases with one message', async () => {
    const { lockstep } = bench.open(driver, { max: 2 })
    const leases = await Promise.all([1, 2, 3].map(() => lockstep.leases.acquire(fresh(), { ttlMs: 1500 })))
    const other = bench.open(driver).lockstep
    for (let look = 0; look < 8; look++) {
      await sleep(300)
      for (const lease of leases) expect(await other.leases.tryAcquire(lease.key)).toBeUndefined()
    }
    for (const lease of leases) {
      expect(lease.signal.aborted).toBe(false)
      await lease.release()
    }
  })

  test('a lease that is not renewed expires, and is taken over with a higher fence', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 30_000, holder: 'gone' })
    await bench.admin.query(`UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name = $1`, [name])
    const next = await other.leases.acquire(name)
    expect(next.fence).toBeGreaterThan(lease.fence)
    const error = await failureOf(lease.transaction({}, (tx) => note(tx, 'late')))
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'taken away', fence: lease.fence })
    expect(lease.signal.aborted).toBe(true)
    expect(lease.signal.reason).toBe(error)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    // Giving back what it does not have takes nothing from the next.
    await lease.release()
    next.assertHeld()
    expect((await other.leases.inspect(name)).holders).toMatchObject([{ fence: next.fence }])
    await next.release()
    expect(await bench.notes()).toEqual([])
    expect((await one.leases.history(name)).map(({ ending }) => ending)).toEqual(['released', 'expired'])
  })

  test('while its transaction is open nobody else gets in, even past the end of its time', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 30_000 })
    await lease.transaction({}, async (tx) => {
      await bench.admin.query(`UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name = $1`, [name])
      expect(await other.leases.tryAcquire(name)).toBeUndefined()
      await note(tx, `guarded-${driver}`)
    })
    expect(await bench.notes()).toEqual([`guarded-${driver}`])
    const next = await other.leases.acquire(name)
    await next.release()
    await lease.release()
  })

  test('a holder’s heartbeat goes on while its transaction is open', async () => {
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

  test('a transaction that sits idle past the trust is ended, and it is the lease that was lost', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 400, maxHoldMs: 100 })
    const error = await failureOf(
      lease.transaction({}, async (tx) => {
        await sleep(600)
        await note(tx, 'never')
      }),
    )
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'held too long' })
    expect(await bench.notes()).toEqual([])
    await lease.release()
  })

  test('waiters are served in the order of their coming, and nobody overtakes', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver, { max: 3 }).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const served: number[] = []
    const waiters = Array.from({ length: 12 }, (_, number) =>
      other.lease(name, { waitMs: 10_000, holder: `w${number}` }, async () => {
        served.push(number)
        // Free for a moment between two of them, and not for whoever does not stand in line.
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

  test('a wait ends by time, by signal and by close, and leaves the line', async () => {
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

  test('a waiter that is gone is passed over', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    await lockstep.leases.inspect(name)
    await bench.admin.query(
      `INSERT INTO lockstep.lease_waiters (name, token, holder, expires_at)
       VALUES ($1, gen_random_uuid(), 'dead', clock_timestamp() + interval '1 second')`,
      [name],
    )
    const ahead = await failureOf(lockstep.leases.acquire(name))
    expect(ahead).toMatchObject({ code: 'LOCKSTEP_LEASE_HELD', holder: undefined })
    const lease = await lockstep.leases.acquire(name, { waitMs: 5000 })
    await lease.release()
  })

  test('permits: so many and no more, and all must agree', async () => {
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

  test('force release: the holder is told, cannot commit, and it is written down', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 600, holder: 'stuck' })
    expect(await other.leases.forceRelease(name, { by: 'operator', reason: 'it hangs' })).toEqual({ released: 1 })
    await expect(lease.transaction({}, (tx) => note(tx, 'late'))).rejects.toBeInstanceOf(LeaseLostError)
    expect(await bench.notes()).toEqual([])
    expect(await one.leases.history(name)).toMatchObject([
      { holder: 'stuck', ending: 'forced', by: 'operator', reason: 'it hangs', fence: lease.fence },
    ])
    expect(await other.leases.forceRelease(name, { by: 'operator', reason: 'again' })).toEqual({ released: 0 })
    await lease.release()
  })

  test('force release of a holder with a transaction open waits, or ends it', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const [open, end] = [signal(), signal()]
    const work = failureOf(
      lease.transaction({ retry: false }, async (tx) => {
        open.give()
        await end.given
        await note(tx, 'late')
      }),
    )
    await open.given
    const busy = await failureOf(other.leases.forceRelease(name, { by: 'operator', reason: 'x', waitMs: 60 }))
    expect(busy).toBeInstanceOf(LeaseBusyError)
    expect(await other.leases.forceRelease(name, { by: 'operator', reason: 'x', terminate: true })).toEqual({
      released: 1,
    })
    end.give()
    expect(await work).toBeInstanceOf(Error)
    expect(await bench.notes()).toEqual([])
    await lease.release()
  })

  test('close gives back what is held and tells its holder', async () => {
    const { lockstep } = bench.open(driver)
    const other = bench.open(driver).lockstep
    const name = fresh()
    const lease = await lockstep.leases.acquire(name)
    await lockstep.close()
    expect(lease.signal.reason).toMatchObject({ code: 'LOCKSTEP_LEASE_LOST', reason: 'closed' })
    await (await other.leases.acquire(name)).release()
    await expect(lockstep.leases.acquire(name)).rejects.toBeInstanceOf(LockstepClosedError)
  })

  test('a leader, and another one when the first has resigned', async () => {
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

  test('bad input is refused before anything is sent', async () => {
    const { lockstep } = bench.open(driver)
    const bad = [{ ttlMs: 10 }, { ttlMs: 1.5 }, { permits: 0 }, { holder: '' }, { waitMs: -1 }, { maxHoldMs: 0 }]
    for (const options of [...bad, { metadata: 'x' as never }, { signal: {} as never }, null as never]) {
      await expect(lockstep.leases.acquire(fresh(), options)).rejects.toBeInstanceOf(InvalidOptionError)
    }
    await expect(lockstep.leases.acquire('lock' as never)).rejects.toMatchObject({ code: 'LOCKSTEP_INVALID_KEY' })
    await expect(lockstep.lease(fresh(), {}, undefined as never)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockstep.leases.forceRelease(fresh(), { by: '', reason: 'x' })).rejects.toBeInstanceOf(
      InvalidOptionError,
    )
    await expect(lockstep.leases.list({ limit: 0 })).rejects.toBeInstanceOf(InvalidOptionError)
  })
})
