import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Key, type Lease, LeaseBusyError, LeasePermitsDifferError } from '../index.ts'
import { cleanUp } from './leases.sql.ts'

const bench = await testBench()

let names = 0
const fresh = () => key`Permits:${++names}`

/** Its time is over, as after a step of the database's clock, or where no heartbeat gets through. */
const expire = (name: Key): Promise<unknown> =>
  bench.admin.query('UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name = $1', [name])

const slots = async (name: Key): Promise<number[]> =>
  (
    await bench.admin.query<{ slot: number }>('SELECT slot FROM lockstep.leases WHERE name = $1 ORDER BY slot', [name])
  ).rows.map(({ slot }) => slot)

/** A transaction under the lease that is open until told to commit. */
async function openUnder(lease: Lease, id: string): Promise<() => Promise<void>> {
  const [open, end] = [signal(), signal()]
  const work = lease.transaction({}, async (tx) => {
    await note(tx, id)
    open.give()
    await end.given
  })
  await Promise.race([open.given, work])
  return async () => {
    end.give()
    await work
  }
}

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
    const commit = await openUnder(last, `late ${driver} ${before} ${after}`)
    await expire(name)
    const early = await other.leases.tryAcquire(name, { permits: after })
    await early?.release()
    const waiting = other.leases.acquire(name, { permits: after, waitMs: 20_000 })
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
    const commit = await openUnder(lease, `released ${driver}`)
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
  test('a holder without heartbeats, busy in its transaction past its ttl, commits before the next holder or not at all', async () => {
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
      next = await other.leases.acquire(name, { waitMs: 20_000 }).catch((error: unknown) => {
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

  test('a caller that is just taking it with other permits is not joined', async () => {
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

  test('a row that is being cleaned away is not taken for held', async () => {
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

  test('the change writes the ends of expired holders into the history, and leaves nothing of the old number', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const all = []
    for (let slot = 0; slot < 3; slot++)
      all.push(await lockstep.leases.acquire(name, { permits: 3, holder: `old ${slot}` }))
    await expire(name)
    const next = await lockstep.leases.acquire(name, { permits: 2, holder: 'new' })
    expect(await slots(name)).toEqual([0, 1])
    expect((await lockstep.leases.inspect(name)).permits).toBe(2)
    await next.release()
    for (const lease of all) await lease.release()
    const endings = (await lockstep.leases.history(name)).map(({ holder, ending }) => `${holder} ${ending}`)
    expect(endings.toSorted()).toEqual(['new released', 'old 0 expired', 'old 1 expired', 'old 2 expired'])
  })
})
