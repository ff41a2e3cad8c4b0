import { describe, expect, test } from 'vitest'
import { fresh, leaseBench, lost, nextEvent } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note, pidOf } from '../../tools/server/testing/workbench.ts'
import { LeaseLostError, LeaseTransactionTooLongError, LockAbortedError, type LockstepError } from '../index.ts'
import { on } from '../observe/index.ts'
import { cleanUp } from './leases.sql.ts'

const bench = await leaseBench()

describe.each(DRIVERS)('how leases end, %s', (driver) => {
  test('rejects a transaction that outlasts the trust of its beginning, while the lease continues', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 2000 })
    let runs = 0
    const error = await failureOf(
      lease.transaction({}, async (tx) => {
        runs++
        await bench.gone(await pidOf(tx))
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

  test('keeps a stricter idle timeout of the role', async () => {
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

  test('passes the error of the function on, even when the lease is lost', async () => {
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

  test('elects a leader again that lost its lease to a network outage', async () => {
    const { proxy, lockstep } = await bench.proxied(driver)
    const terms: bigint[] = []
    const name = fresh()
    await lockstep.leader(name, { ttlMs: 300 }, async (lease) => {
      terms.push(lease.fence)
      if (terms.length === 2) return
      proxy.refuse(true)
      proxy.cutAll()
      await lost(lease)
      void nextEvent('lease.unreachable', name).then(() => proxy.refuse(false))
    })
    expect(terms[1]).toBeGreaterThan(terms[0] as bigint)
  })

  test('reports a heartbeat without an answer as unknown', async () => {
    const { proxy, lockstep } = await bench.proxied(driver)
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

  test('names the lease when the signal was aborted before the call', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const error = await failureOf(lockstep.leases.acquire(name, { signal: AbortSignal.abort('no') }))
    expect(error).toBeInstanceOf(LockAbortedError)
    expect(error).toMatchObject({ keys: [name], cause: 'no' } satisfies Partial<LockstepError>)
  })

  test('accepts the longest waitMs', async () => {
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

  test('accepts a silenceMs longer than any timer', async () => {
    const { lockstep } = bench.open(driver, { silenceMs: 2 ** 32 })
    await lockstep.lease(fresh(), {}, async (lease) => lease.transaction({}, (tx) => tx.query('SELECT 1')))
    expect(await lockstep.leases.list({ prefix: 'Nobody:' })).toEqual([])
  })

  test('writes no history with history: false, unless the lease was taken away', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    await lockstep.lease(name, { history: false }, async () => Promise.resolve())
    expect(await lockstep.leases.history(name)).toEqual([])
    const lease = await lockstep.leases.acquire(name, { history: false })
    await lockstep.leases.forceRelease(name, { by: 'me', reason: 'test' })
    expect(await lockstep.leases.history(name)).toMatchObject([{ ending: 'forced' }])
    await lease.release()
  })

  test('removes old history and idle rows, and never reuses a fence', async () => {
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

  // PostgreSQL does not arm transaction_timeout again where it is armed already: it has to be 0 first.
  test('bounds a transaction by its trust where the role has a larger transaction_timeout', async () => {
    const { rows: known } = await bench.admin.query(`SELECT 1 FROM pg_settings WHERE name = 'transaction_timeout'`)
    // Before 17 there is no such bound: one that sits idle is ended all the same.
    if (known.length === 0) return
    await bench.admin.query(`ALTER ROLE postgres SET transaction_timeout = '1h'`)
    const { lockstep } = bench.open(driver)
    try {
      const lease = await lockstep.leases.acquire(fresh(), { ttlMs: 600 })
      const error = await failureOf(lease.transaction({}, (tx) => tx.query('SELECT pg_sleep(600)')))
      await lease.release()
      expect(error).toBeInstanceOf(LeaseTransactionTooLongError)
    } finally {
      await bench.admin.query('ALTER ROLE postgres RESET transaction_timeout')
    }
  })
})
