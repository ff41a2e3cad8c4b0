import { describe, expect, test } from 'vitest'
import type { Proxy } from '../testing/index.ts'
import { fresh, leaseBench, nextEvent } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS } from '../../tools/server/testing/workbench.ts'
import type { Key, Lease } from '../index.ts'

const bench = await leaseBench()

const TTL_MS = 3000

/** The answer to the next message with this in it takes so long, the message itself no time. */
function delayAnswer(proxy: Proxy, to: string, byMs: number): void {
  proxy.onClientData((chunk, asking) => {
    if (!chunk.includes(to)) return 'forward'
    proxy.onClientData(undefined)
    proxy.onServerData((_, answered) => {
      if (answered !== asking) return 'forward'
      proxy.onServerData(undefined)
      setTimeout(() => answered.release(), byMs)
      return 'hold'
    })
    return 'forward'
  })
}

/** How much longer the holder trusts its lease than its row lasts. */
async function tooMuchTrust(name: Key, lease: Lease): Promise<number> {
  const { rows } = await bench.admin.query<{ left: number }>(
    'SELECT (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 AS left FROM lockstep.leases WHERE name = $1',
    [name],
  )
  return lease.trustedMs - (rows[0]?.left ?? 0)
}

describe.each(DRIVERS)('slow answers, %s', (driver) => {
  test('trusts a lease from the time of the question, not of the answer', async () => {
    const { proxy, lockstep } = await bench.proxied(driver)
    await lockstep.leases.inspect(fresh())
    const name = fresh()
    delayAnswer(proxy, 'lease_take', TTL_MS * 0.3)
    const lease = await lockstep.leases.acquire(name, { ttlMs: TTL_MS })
    expect(await tooMuchTrust(name, lease)).toBeLessThan(0)
    await lease.release()
  })

  test('trusts a heartbeat from the time of the question, not of the answer', async () => {
    const { proxy, lockstep } = await bench.proxied(driver)
    const name = fresh()
    const lease = await lockstep.leases.acquire(name, { ttlMs: TTL_MS })
    delayAnswer(proxy, 'lease_renew', TTL_MS * 0.17)
    await nextEvent('lease.renewed', name)
    expect(await tooMuchTrust(name, lease)).toBeLessThan(0)
    await lease.release()
  })
})
