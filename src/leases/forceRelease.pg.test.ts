import { describe, expect, test } from 'vitest'
import { fresh, leaseBench, nextEvent } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note, signal } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, LeaseBusyError, LeaseLostError } from '../index.ts'

/** An operator takes a lease away from its holder. */

const bench = await leaseBench()
const BY = { by: 'operator', reason: 'it hangs' }

describe.each(DRIVERS)('force release, %s', (driver) => {
  test('keeps the holder from committing, and is written to the history', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { holder: 'stuck' })
    expect(await other.leases.forceRelease(name, BY)).toEqual({ released: 1 })
    await expect(lease.transaction({}, (tx) => note(tx, 'late'))).rejects.toBeInstanceOf(LeaseLostError)
    expect(await bench.notes()).toEqual([])
    expect(await one.leases.history(name)).toMatchObject([
      { holder: 'stuck', ending: 'forced', by: 'operator', reason: 'it hangs', fence: lease.fence },
    ])
    expect(await other.leases.forceRelease(name, BY)).toEqual({ released: 0 })
    await lease.release()
  })

  test('aborts the signal of the holder at its next heartbeat, and the next holder keeps the lease', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 3000 })
    await other.leases.forceRelease(name, BY)
    const nextLease = await other.leases.acquire(name, { ttlMs: 30_000 })
    await expect.poll(() => lease.signal.aborted).toBe(true)
    expect(lease.signal.reason).toMatchObject({ reason: 'taken away' })
    await lease.release()
    expect((await other.leases.inspect(name)).holders).toMatchObject([{ fence: nextLease.fence }])
    await nextLease.transaction({}, (tx) => tx.query('SELECT 1'))
    await nextLease.release()
  })

  test('rejects with LeaseBusyError while a transaction of the holder is open, and with terminate ends it', async () => {
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
    expect(await failureOf(other.leases.forceRelease(name, { ...BY, waitMs: 60 }))).toBeInstanceOf(LeaseBusyError)
    expect(await other.leases.forceRelease(name, { ...BY, terminate: true })).toEqual({ released: 1 })
    end.give()
    expect(await work).toBeInstanceOf(Error)
    expect(await bench.notes()).toEqual([])
    await lease.release()
  })

  test('waits longer than silenceMs if waitMs says so', async () => {
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { silenceMs: 300 }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const commit = await bench.openUnder(lease)
    const forced = other.leases.forceRelease(name, { ...BY, waitMs: 60_000 })
    const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                        AND query_start < clock_timestamp() - interval '1 second'`
    await Promise.race([forced, expect.poll(async () => (await bench.admin.query(waiting)).rowCount).toBe(1)])
    await commit()
    expect(await forced).toEqual({ released: 1 })
    await lease.release()
  })

  // It looks for blockers while it holds the only connection.
  test('returns with terminate on a pool of one', async () => {
    const one = bench.open(driver).lockstep
    const other = bench.open(driver, { max: 1, silenceMs: 600_000 }).lockstep
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const commit = await bench.openUnder(lease)
    const forced = failureOf(other.leases.forceRelease(name, { ...BY, waitMs: 400, terminate: true }))
    expect(await forced).toBeInstanceOf(LeaseBusyError)
    await commit()
    await lease.release()
  })

  test('ends a holder that itself waits for a lock', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const blocker = await bench.session()
    await blocker.query(`BEGIN; INSERT INTO notes VALUES ('contended')`)
    const lease = await one.leases.acquire(name)
    const work = failureOf(lease.transaction({ retry: false }, (tx) => note(tx, 'contended')))
    await bench.lockWaits(1)
    expect(await other.leases.forceRelease(name, { ...BY, waitMs: 1500, terminate: true })).toEqual({ released: 1 })
    await blocker.query('ROLLBACK')
    await work.catch(() => undefined)
    await lease.release()
  })

  test('waits through heartbeats of the holder, which commits nothing afterwards', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = fresh()
    const lease = await one.leases.acquire(name, { ttlMs: 3000 })
    const commit = await bench.openUnder(lease, (tx) => note(tx, 'before'))
    const forced = other.leases.forceRelease(name, { ...BY, waitMs: 60_000 })
    await nextEvent('lease.renewed', name)
    await commit()
    expect(await forced).toEqual({ released: 1 })
    expect(await failureOf(lease.transaction({}, (tx) => note(tx, 'after')))).toBeInstanceOf(LeaseLostError)
    expect(await bench.notes()).toEqual(['before'])
    await lease.release()
  })

  test('succeeds once for two operators at the same time', async () => {
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
      [other, one].map((lockstep) => lockstep.leases.forceRelease(name, { ...BY, terminate: true })),
    )
    end.give()
    await work
    expect(released.map((each) => each.released).toSorted((a, b) => a - b)).toEqual([0, 1])
    await lease.release()
  })

  test.each([undefined, { by: '', reason: 'x' }, { ...BY, waitMs: false }, { ...BY, waitMs: Number.NaN }])(
    'rejects %o',
    async (options) => {
      const { lockstep } = bench.open(driver)
      await expect(lockstep.leases.forceRelease(fresh(), options as never)).rejects.toBeInstanceOf(InvalidOptionError)
    },
  )
})
