import { describe, expect, test } from 'vitest'
import { fresh, leaseBench } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, note, strikeNext } from '../../tools/server/testing/workbench.ts'

/** Messages of a holder that are lost, or arrive late. */

const bench = await leaseBench()

describe.each(DRIVERS)('lost messages of a lease holder, %s', (driver) => {
  // The second question finds the lease taken by the first one: trust counts from the first question, as the row's time does.
  test('does not extend trust past the end of the row after a lost answer', async () => {
    const { proxy, lockstep: mine } = await bench.proxied(driver)
    const other = bench.open(driver).lockstep
    await mine.leases.inspect(fresh())
    const name = fresh()
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('lease_take')) return 'forward'
      proxy.onClientData(undefined)
      // Reaches the server; the answer is lost.
      proxy.onServerData((_, from) => (from === connection ? 'hold' : 'forward'))
      return 'forward'
    })
    const lease = await mine.leases.acquire(name, { ttlMs: 3000 })
    proxy.silence()
    const next = await other.leases.acquire(name, { waitMs: false })
    const stillTrusted = lease.trustedMs
    await next.release()
    proxy.resume()
    proxy.cutAll()
    await lease.release()
    expect(stillTrusted).toBe(0)
  })

  // The token alone does not name a holder: the fence has to match too.
  test('commits nothing after the lease was lost, even if a late message takes it again under its token', async () => {
    const { proxy, lockstep: mine } = await bench.proxied(driver)
    const other = bench.open(driver).lockstep
    await mine.leases.inspect(fresh())
    const name = fresh()
    const stuck = strikeNext(proxy, 'lease_take', 'hold')
    const lease = await mine.leases.acquire(name, { ttlMs: 3000 })
    await other.leases.forceRelease(name, { by: 'operator', reason: 'test' })
    const between = await other.leases.acquire(name)
    expect(between.fence).toBeGreaterThan(lease.fence)
    await between.release()
    ;(await stuck).release()
    await expect.poll(() => bench.isHeld(name)).toBe(true)
    await lease.transaction({}, (tx) => note(tx, 'stale')).catch(() => undefined)
    expect(await bench.notes()).toEqual([])
    await other.leases.forceRelease(name, { by: 'operator', reason: 'test' })
    await lease.release()
  })

  test('repeats a release until the network is back', async () => {
    const { proxy, lockstep } = await bench.proxied(driver)
    const name = fresh()
    const lease = await lockstep.leases.acquire(name, { ttlMs: 60_000 })
    proxy.refuse(true)
    proxy.cutAll()
    const released = lease.release()
    await expect.poll(() => proxy.refused).toBeGreaterThan(8)
    proxy.refuse(false)
    await released
    await expect.poll(() => bench.isHeld(name)).toBe(false)
  })

  test('releases once when the answer is lost', async () => {
    const { proxy, lockstep } = await bench.proxied(driver)
    const name = fresh()
    const lease = await lockstep.leases.acquire(name)
    proxy.onServerData(() => {
      proxy.onServerData(undefined)
      return 'cut-before'
    })
    await lease.release()
    expect(await bench.isHeld(name)).toBe(false)
    expect(await lockstep.leases.history(name)).toHaveLength(1)
  })
})
