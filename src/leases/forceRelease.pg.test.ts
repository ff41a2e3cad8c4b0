import { describe, expect, test } from 'vitest'
import { DRIVERS, testBench } from '../../tools/server/testing/workbench.ts'
import { key } from '../index.ts'

const bench = await testBench()

describe.each(DRIVERS)('a lease that was taken away, %s', (driver) => {
  test('a heartbeat takes nothing back: its holder is told, and the next one keeps it', async () => {
    const [one, other] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const name = key`TakenAway:${driver}`
    const lease = await one.leases.acquire(name, { ttlMs: 600 })
    await other.leases.forceRelease(name, { by: 'operator', reason: 'test' })
    const next = await other.leases.acquire(name, { ttlMs: 30_000 })
    await expect.poll(() => lease.signal.aborted).toBe(true)
    expect(lease.signal.reason).toMatchObject({ reason: 'taken away' })
    await lease.release()
    expect((await other.leases.inspect(name)).holders).toMatchObject([{ fence: next.fence }])
    await next.transaction({}, (tx) => tx.query('SELECT 1'))
    await next.release()
  })
})
