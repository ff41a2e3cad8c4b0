import { describe, expect, test } from 'vitest'
import { fresh, leaseBench, lost } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note, signal, strikeNext } from '../../tools/server/testing/workbench.ts'
import { type Lease, LockstepClosedError } from '../index.ts'
import { on } from '../observe/index.ts'

/** What close() does with leases, and with callers that wait for one. */

const bench = await leaseBench()

describe.each(DRIVERS)('close(), %s', (driver) => {
  test('releases held leases, aborts the signals of their holders, and rejects new callers', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const lease = await lockstep.leases.acquire(name)
    await lockstep.close()
    expect(lease.signal.reason).toMatchObject({ code: 'LOCKSTEP_LEASE_LOST', reason: 'closed' })
    await (await bench.open(driver).lockstep.leases.acquire(name)).release()
    await expect(lockstep.leases.acquire(name)).rejects.toBeInstanceOf(LockstepClosedError)
  })

  test('waits for what runs under a lease', async () => {
    const { lockstep } = bench.open(driver)
    const [running, goOn] = [signal(), signal()]
    const work = lockstep.lease(fresh(), {}, async (lease) => {
      running.give()
      await goOn.given
      await lease.transaction({}, (tx) => note(tx, 'closing'))
    })
    await running.given
    const closed = lockstep.close()
    goOn.give()
    await Promise.all([work, closed])
    expect(await bench.notes()).toEqual(['closing'])
  })

  test('waits for a transaction of a lease that was acquired by hand', async () => {
    const { lockstep } = bench.open(driver)
    const lease = await lockstep.leases.acquire(fresh())
    const commit = await bench.openUnder(lease, (tx) => note(tx, 'by hand'))
    const closed = lockstep.close()
    await Promise.all([commit(), closed])
    expect(lease.signal.reason).toMatchObject({ reason: 'closed' })
    expect(await bench.notes()).toEqual(['by hand'])
  })

  // A caller that ends its pool after close() would leave a holder behind for the whole ttl.
  test('leaves no holder behind of an acquire that is in progress', async () => {
    const client = await bench.proxied(driver)
    await client.lockstep.leases.inspect(fresh())
    const name = fresh()
    const held = strikeNext(client.proxy, 'lease_take', 'hold')
    const acquiring = failureOf(client.lockstep.leases.acquire(name))
    const connection = await held
    const ended = client.end()
    // A close() that does not wait has begun to end the pool by now.
    await bench.isHeld(name)
    connection.release()
    await Promise.all([ended, acquiring])
    expect(await bench.isHeld(name)).toBe(false)
  })

  test('returns when the connection that listens is dead', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 3000 })
    const name = fresh()
    const lease = await one.leases.acquire(name)
    const waiting = failureOf(lockstep.leases.acquire(name, { waitMs: false }))
    await bench.queued(name, 1)
    const listening = `SELECT FROM pg_stat_activity WHERE query ILIKE 'listen%' AND datname = current_database()`
    await expect.poll(async () => (await bench.admin.query(listening)).rowCount).toBeGreaterThan(0)
    proxy.silence()
    await lockstep.close()
    await waiting
    await lease.release()
  })

  test('returns when LISTEN is never answered', async () => {
    const one = bench.open(driver).lockstep
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 3000 })
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
    const waiting = failureOf(lockstep.leases.acquire(name, { waitMs: false }))
    await struck.given
    await bench.queued(name, 1)
    await lockstep.close()
    await waiting
    await lease.release()
  })

  // A caller that ends its pool after close() would leave them in the way of others for six seconds. close() gives up after two seconds, so a
  // machine that is busy for that long shows nothing, and the test asks again.
  test('waits until the waiters that it refused are out of the queue', async () => {
    const returnsTooEarly = async (): Promise<boolean> => {
      const one = bench.open(driver).lockstep
      const { proxy, lockstep } = await bench.proxied(driver)
      const name = fresh()
      const lease = await one.leases.acquire(name)
      const waiting = failureOf(lockstep.leases.acquire(name, { waitMs: false }))
      await bench.queued(name, 1)
      const leaving = strikeNext(proxy, 'lease_leave(', 'hold')
      let returned = false
      const closed = lockstep.close().then(() => (returned = true))
      const connection = await leaving
      await bench.queued(name, 1)
      const early = returned
      connection.release()
      await Promise.all([closed, waiting])
      await bench.queued(name, 0)
      await lease.release()
      return early
    }
    await expect.poll(returnsTooEarly).toBe(false)
  })

  test('ends a leader that works until its signal', async () => {
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

  test('ends a leader at the moment of its election', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    let closed: Promise<void> | undefined
    bench.cleanUp(
      on('lease.acquired', (event) => {
        if (event.key === name) closed ??= lockstep.close()
      }),
    )
    await lockstep.leader(name, {}, (lease: Lease) => lost(lease)).catch(() => undefined)
    await closed
  })
})
