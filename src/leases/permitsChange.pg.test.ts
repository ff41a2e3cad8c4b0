import { describe, expect, test } from 'vitest'
import { fresh, leaseBench } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note } from '../../tools/server/testing/workbench.ts'
import { type Key, type Lease, LeaseBusyError, LeasePermitsDifferError } from '../index.ts'
import { cleanUp } from './leases.sql.ts'

const bench = await leaseBench()

const slots = async (name: Key): Promise<number[]> =>
  (
    await bench.admin.query<{ slot: number }>('SELECT slot FROM lockstep.leases WHERE name = $1 ORDER BY slot', [name])
  ).rows.map(({ slot }) => slot)

describe.each(DRIVERS)('another number of permits, %s', (driver) => {
  test.each([
    ['fewer', 2, 1],
    ['more', 1, 2],
    ['one more', 2, 3],
  ])('keeps out a holder with %s permits while the last one’s transaction is open', async (_, before, after) => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const all = []
    for (let slot = 0; slot < before; slot++) all.push(await one.leases.acquire(name, { permits: before }))
    const last = all.pop() as Lease
    for (const lease of all) await lease.release()
    const commit = await bench.openUnder(last, (tx) => note(tx, `late ${driver} ${before} ${after}`))
    await bench.expire(name)
    const early = await other.leases.tryAcquire(name, { permits: after })
    await early?.release()
    const waiting = other.leases.acquire(name, { permits: after, waitMs: false })
    const held = (await other.leases.inspect(name)).holders.length
    await commit()
    const next = await waiting
    await next.release()
    await last.release()
    expect(early).toBeUndefined()
    expect(held).toBe(0)
    expect(next.fence).toBeGreaterThan(last.fence)
    expect(await slots(name)).toEqual(before > after ? [0] : expect.arrayContaining([0]))
  })

  test('keeps out a holder with another number of permits while the last one, released, has a transaction open', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const commit = await bench.openUnder(lease, (tx) => note(tx, `released ${driver}`))
    await lease.release()
    const early = await other.leases.tryAcquire(name, { permits: 2 })
    await early?.release()
    const forced = await failureOf(other.leases.forceRelease(name, { by: 'x', reason: 'y', waitMs: 200 }))
    await commit()
    expect(early).toBeUndefined()
    expect(forced).toBeInstanceOf(LeaseBusyError)
    await (await other.leases.acquire(name, { permits: 2 })).release()
  })

  // Before PostgreSQL 17 nothing ends a transaction that is busy when the trust is over.
  test('lets a holder that is busy past its ttl commit before the next holder or not at all', async () => {
    const one = bench.open(driver, { max: 1 }).lockstep
    const other = bench.open(driver).lockstep
    const name = fresh()
    const first = await one.leases.acquire(name, { permits: 2 })
    const second = await one.leases.acquire(name, { permits: 2, ttlMs: 600 })
    await first.release()
    const id = `busy ${driver}`
    const work = second
      .transaction({ retry: false }, async (tx) => {
        await note(tx, id)
        await tx.query('SELECT pg_sleep(2)')
      })
      .then(
        () => true,
        () => false,
      )
    // While its time is not over, another number is refused.
    let next: Lease | undefined
    while (next === undefined) {
      next = await other.leases.acquire(name, { waitMs: false }).catch((error: unknown) => {
        if (!(error instanceof LeasePermitsDifferError)) throw error
        return undefined
      })
    }
    const written = (await bench.notes()).includes(id)
    await next.release()
    expect(await work).toBe(written)
    expect((await bench.notes()).includes(id)).toBe(written)
    await second.release()
  })

  test('does not join a caller that takes it at the same time with another number of permits', async () => {
    const other = bench.open(driver).lockstep
    const name = fresh()
    await (await other.leases.acquire(name)).release()
    // As lease_take does it for a caller with one permit, just before its COMMIT: it knows of no other number.
    const taking = await bench.admin.connect()
    await taking.query('BEGIN')
    await taking.query(
      `SELECT verdict FROM lockstep.lease_take($1, gen_random_uuid(), 30000, 1, 'one', NULL, NULL, true)`,
      [name],
    )
    const joined = await other.leases.tryAcquire(name, { permits: 2 })
    await taking.query('COMMIT')
    taking.release()
    expect(joined).toBeUndefined()
    expect((await other.leases.inspect(name)).holders).toHaveLength(1)
    await other.leases.forceRelease(name, { by: 'test', reason: 'the end' })
  })

  test('grants a lease whose row is being cleaned up', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    await (await lockstep.leases.acquire(name)).release()
    await bench.admin.query(`UPDATE lockstep.leases SET expires_at = expires_at - interval '1 hour' WHERE name = $1`, [
      name,
    ])
    const cleaning = await bench.admin.connect()
    await cleaning.query(cleanUp('lockstep', 10_000, 0).replace(/COMMIT$/, ''))
    const asking = lockstep.leases.tryAcquire(name)
    await bench.waiters(1)
    await cleaning.query('COMMIT')
    cleaning.release()
    const lease = await asking
    expect(lease).toBeDefined()
    await lease?.release()
  })

  test('writes expired holders to the history, and removes slots of the old number', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const all = []
    for (let slot = 0; slot < 3; slot++)
      all.push(await lockstep.leases.acquire(name, { permits: 3, holder: `old ${slot}` }))
    await bench.expire(name)
    const next = await lockstep.leases.acquire(name, { permits: 2, holder: 'new' })
    expect(await slots(name)).toEqual([0, 1])
    expect((await lockstep.leases.inspect(name)).permits).toBe(2)
    await next.release()
    for (const lease of all) await lease.release()
    const endings = (await lockstep.leases.history(name)).map(({ holder, ending }) => `${holder} ${ending}`)
    expect(endings.toSorted()).toEqual(['new released', 'old 0 expired', 'old 1 expired', 'old 2 expired'])
  })

  // Rows of an earlier number of permits could let each of the two take a slot unseen by the other.
  test('never grants two callers that differ in permits', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const both = await Promise.all([1, 2].map(() => one.leases.acquire(name, { permits: 2 })))
    for (const lease of both) await lease.release()
    // As lease_take does it for a caller with one permit, just before its COMMIT.
    const taking = await bench.session()
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
    expect(await second).toBeInstanceOf(LeasePermitsDifferError)
    expect((await one.leases.inspect(name)).holders).toHaveLength(1)
  })
})
