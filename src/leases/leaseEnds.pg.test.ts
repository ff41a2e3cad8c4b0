import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  InvalidOptionError,
  key,
  type Lease,
  LeaseLostError,
  LeaseTransactionTooLongError,
  LockAbortedError,
  type LockstepError,
} from '../index.ts'
import { on } from '../observe/index.ts'
import { cleanUp } from './leases.sql.ts'

const bench = await testBench()

let names = 0
const fresh = () => key`Ends:${++names}`

/** Comes back when the signal is aborted. */
const lost = ({ signal: of }: Lease): Promise<void> =>
  new Promise((resolve) => of.addEventListener('abort', () => resolve(), { once: true }))

describe.each(DRIVERS)('how leases end, %s', (driver) => {
  test('a transaction that outlasts the trust of its beginning is told so, once, though the lease goes on', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 2000 })
    let runs = 0
    const error = await failureOf(
      lease.transaction({}, async (tx) => {
        runs++
        await sleep(2100)
        await note(tx, 'too late')
      }),
    )
    expect(error).toBeInstanceOf(LeaseTransactionTooLongError)
    expect(runs).toBe(1)
    expect(await bench.notes()).toEqual([])
    lease.assertHeld()
    await lease.transaction({}, (tx) => note(tx, `in time ${driver}`))
    await lease.release()
    expect(await bench.notes()).toEqual([`in time ${driver}`])
  })

  test('a stricter bound of the caller’s own is kept', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh())
    const shown = async (): Promise<unknown> =>
      lease.transaction({}, async (tx) => {
        const { rows } = await tx.query(`SELECT current_setting('idle_in_transaction_session_timeout') AS bound`)
        return rows[0]?.['bound']
      })
    expect(await shown()).toMatch(/^2[67]\d{3}ms$/)
    await bench.admin.query(`ALTER ROLE postgres SET idle_in_transaction_session_timeout = '5s'`)
    const second = bench.open(driver).lockstep
    try {
      const other = await second.leases.acquire(fresh())
      await other.transaction({}, async (tx) => {
        const { rows } = await tx.query(`SELECT current_setting('idle_in_transaction_session_timeout') AS bound`)
        expect(rows).toEqual([{ bound: '5s' }])
      })
      await other.release()
    } finally {
      await bench.admin.query('ALTER ROLE postgres RESET idle_in_transaction_session_timeout')
    }
    await lease.release()
  })

  test('an error of the function stays what it is, also when the trust is over', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 5000, maxHoldMs: 1000 })
    const error = await failureOf(
      lease.transaction({}, async () => {
        await lost(lease)
        throw new Error('insufficient funds')
      }),
    )
    expect(String(error)).toContain('insufficient funds')
    await lease.release()
  })

  test('while it closes, what runs under a lease is served to its end', async () => {
    const { lockstep } = bench.open(driver)
    const [running, goOn] = [signal(), signal()]
    const work = lockstep.lease(fresh(), {}, async (lease) => {
      running.give()
      await goOn.given
      await lease.transaction({}, (tx) => note(tx, `closing ${driver}`))
    })
    await running.given
    const closed = lockstep.close()
    goOn.give()
    await work
    await closed
    expect(await bench.notes()).toEqual([`closing ${driver}`])
  })

  test('close waits for a transaction of a lease that was acquired by hand', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh())
    const [running, goOn] = [signal(), signal()]
    const work = lease.transaction({}, async (tx) => {
      running.give()
      await goOn.given
      await note(tx, `by hand ${driver}`)
    })
    await running.given
    const closed = lockstep.close()
    goOn.give()
    await Promise.all([work, closed])
    expect(lease.signal.reason).toMatchObject({ reason: 'closed' })
    expect(await bench.notes()).toEqual([`by hand ${driver}`])
  })

  test('a leader that works until its signal is told when its Lockstep closes', async () => {
    const { lockstep } = bench.open(driver)
    const elected = signal()
    const led = lockstep.leader(fresh(), {}, async (lease) => {
      elected.give()
      await lost(lease)
      return 'resigned'
    })
    await elected.given
    await lockstep.close()
    expect(await led).toBe('resigned')
  })

  test('a leader that has lost the lead stands again, also over a network that was away', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { url: proxy.url(bench.url) })
    const terms: bigint[] = []
    const again = signal()
    const led = lockstep.leader(fresh(), { ttlMs: 300 }, async (lease) => {
      terms.push(lease.fence)
      if (terms.length === 2) return again.give()
      proxy.refuse(true)
      proxy.cutAll()
      await lost(lease)
      setTimeout(() => proxy.refuse(false), 50)
      return undefined
    })
    await again.given
    await led
    expect(terms[1]).toBeGreaterThan(terms[0] as bigint)
  })

  test('a heartbeat without an answer is told as unknown', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { url: proxy.url(bench.url) })
    const outcomes: string[] = []
    const stop = on('lease.renewed', ({ outcome }) => outcomes.push(outcome))
    const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 600 })
    proxy.refuse(true)
    proxy.cutAll()
    await lost(lease)
    stop()
    proxy.refuse(false)
    expect(outcomes).toContain('unknown')
    expect(lease.signal.reason).toMatchObject({ reason: 'not renewed in time' } satisfies Partial<LeaseLostError>)
    await lease.release()
  })

  test('a signal that was aborted before says which lease it was about', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const error = await failureOf(lockstep.leases.acquire(name, { signal: AbortSignal.abort('no') }))
    expect(error).toBeInstanceOf(LockAbortedError)
    expect(error).toMatchObject({ keys: [name], cause: 'no' } satisfies Partial<LockstepError>)
  })

  test('the longest waitMs is a wait: a free lease is granted, and force release comes back', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const waitMs = 2 ** 31 - 1
    const leases = [
      await lockstep.leases.acquire(name, { waitMs, maxHoldMs: waitMs }),
      await lockstep.leases.tryAcquire(fresh(), { waitMs, permits: 2 }),
    ]
    expect(await lockstep.leases.forceRelease(name, { by: 'me', reason: 'test', waitMs })).toEqual({ released: 1 })
    for (const lease of leases) await lease?.release()
  })

  test('silenceMs beyond every timer is a bound all the same', async () => {
    const { lockstep } = bench.open(driver, { silenceMs: 2 ** 32 })
    await lockstep.lease(fresh(), {}, async (lease) => lease.transaction({}, (tx) => tx.query('SELECT 1')))
    expect(await lockstep.leases.list({ prefix: 'Nobody:' })).toEqual([])
  })

  test('force release wants to know who and why, and a sensible wait', async () => {
    const { lockstep } = bench.open(driver)
    await expect(
      lockstep.leases.forceRelease(fresh(), { by: 'me', reason: 'x', waitMs: false as never }),
    ).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockstep.leases.forceRelease(fresh(), undefined as never)).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(
      lockstep.leases.forceRelease(fresh(), { by: 'me', reason: 'x', waitMs: Number.NaN }),
    ).rejects.toBeInstanceOf(InvalidOptionError)
  })

  test('two that take it away at once do not end each other', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const [open, end] = [signal(), signal()]
    const work = failureOf(
      lease.transaction({ retry: false }, async () => {
        open.give()
        await end.given
      }),
    )
    await open.given
    const released = await Promise.all(
      [other, one].map((lockstep) => lockstep.leases.forceRelease(name, { by: 'x', reason: 'y', terminate: true })),
    )
    end.give()
    await work
    expect(released.map((each) => each.released).toSorted((a, b) => a - b)).toEqual([0, 1])
    await lease.release()
  })

  test('history: false leaves no trace, unless it was taken away', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    await lockstep.lease(name, { history: false }, async () => Promise.resolve())
    expect(await lockstep.leases.history(name)).toEqual([])
    const lease = await lockstep.leases.acquire(name, { history: false })
    await lockstep.leases.forceRelease(name, { by: 'me', reason: 'test' })
    expect(await lockstep.leases.history(name)).toMatchObject([{ ending: 'forced' }])
    await lease.release()
  })

  test('clean-up takes away old history and idle rows, and no fence comes twice', async () => {
    const { lockstep } = bench.open(driver)
    const [idle, held] = [fresh(), fresh()]
    const fences: bigint[] = []
    for (let round = 0; round < 6; round++) {
      await lockstep.lease(idle, {}, async (lease) => Promise.resolve(fences.push(lease.fence)))
    }
    const lease = await lockstep.leases.acquire(held)
    // Neither what ended a moment ago nor the last 1,000 ends are ever taken away.
    await bench.admin.query('DELETE FROM lockstep.lease_history WHERE name <> $1', [idle])
    await bench.admin.query(`UPDATE lockstep.leases SET expires_at = expires_at - interval '1 hour' WHERE name = $1`, [
      idle,
    ])
    await bench.admin.query(
      `INSERT INTO lockstep.lease_history (name, slot, fence, holder, acquired_at, ended_at, ending)
       SELECT 'Ends:others', 0, 1, 'other', now(), now(), 'released' FROM generate_series(1, 998)`,
    )
    await bench.admin.query(cleanUp('lockstep', 2, 0))
    const rows = async (): Promise<unknown> =>
      (await bench.admin.query('SELECT name FROM lockstep.leases WHERE name = ANY($1)', [[idle, held]])).rows
    expect(await rows()).toEqual([{ name: held }])
    expect(await lockstep.leases.history(idle)).toHaveLength(2)
    lease.assertHeld()
    await lockstep.lease(idle, {}, async (next) => Promise.resolve(fences.push(next.fence)))
    expect(fences).toEqual(fences.toSorted((a, b) => (a < b ? -1 : 1)))
    expect(new Set([...fences, lease.fence]).size).toBe(fences.length + 1)
    await lease.release()
  })
})
