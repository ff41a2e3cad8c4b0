import { describe, expect, test } from 'vitest'
import { fresh, leaseBench } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, note } from '../../tools/server/testing/workbench.ts'
import { type Lease, LeaseLostError } from '../index.ts'
import { on } from '../observe/index.ts'

const bench = await leaseBench()

/** Takes the lease away from its holder, as another process would. */
const takeAway = (name: string): Promise<unknown> =>
  bench.admin.query(`UPDATE lockstep.leases SET token = NULL, fence = lockstep.next_fence() WHERE name = $1`, [name])

/** Rejects when the signal is aborted, as `fetch` and `timers/promises` do: with an error of its own. */
const abortable = (of: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    of.addEventListener('abort', () => reject(new DOMException('This operation was aborted', 'AbortError')))
  })

/** The process stands still, and its timers with it. */
function standStill(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

describe.each(DRIVERS)('errors after a lost lease, %s', (driver) => {
  test('elects a leader again whose function rejects with an AbortError after the loss', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const fences: bigint[] = []
    const value = await lockstep.leader(name, { ttlMs: 600 }, async (lease) => {
      fences.push(lease.fence)
      if (fences.length === 2) return 'second term'
      await takeAway(name)
      return abortable(lease.signal)
    })
    expect(value).toBe('second term')
    expect(fences[1]).toBeGreaterThan(fences[0] as bigint)
  })

  test('ends a leader with the error of its function while it holds the lease', async () => {
    const { lockstep } = bench.open(driver)
    const error = await failureOf(lockstep.leader(fresh(), {}, () => Promise.reject(new Error('no more work'))))
    expect(String(error)).toContain('no more work')
  })

  test('elects a leader again whose process stood still past its trust', async () => {
    const { lockstep } = bench.open(driver)
    let terms = 0
    const value = await lockstep.leader(fresh(), { ttlMs: 300 }, async () => {
      if (++terms === 2) return terms
      standStill(400)
      return Promise.reject(new Error('timeout of something else'))
    })
    expect(value).toBe(2)
  })

  test('ends a closed leader with LeaseLostError, caused by the error of its function', async () => {
    const { lockstep } = bench.open(driver)
    let closed: Promise<void> | undefined
    const error = await failureOf(
      lockstep.leader(fresh(), {}, async (lease) => {
        const aborted = abortable(lease.signal)
        closed = lockstep.close()
        return aborted
      }),
    )
    await closed
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'closed', cause: { name: 'AbortError' } })
  })

  test('does not elect a leader again that its own signal has ended', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const stopping = new AbortController()
    let terms = 0
    const error = await failureOf(
      lockstep.leader(name, { ttlMs: 600, signal: stopping.signal }, async (lease) => {
        terms++
        await takeAway(name)
        await abortable(lease.signal).catch(() => stopping.abort())
        throw new Error('stopped')
      }),
    )
    expect(String(error)).toContain('stopped')
    expect(terms).toBe(1)
  })

  test('rejects lease() with LeaseLostError after a loss, caused by the error of the function', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const error = await failureOf(
      lockstep.lease(name, { ttlMs: 600 }, async (lease) => {
        await takeAway(name)
        return abortable(lease.signal)
      }),
    )
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'taken away', keys: [name], cause: { name: 'AbortError' } })
  })

  test('rejects lease() with the LeaseLostError that the function threw', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    let seen: Lease | undefined
    const error = await failureOf(
      lockstep.lease(name, {}, async (lease) => {
        seen = lease
        await takeAway(name)
        await lease.transaction({}, (tx) => note(tx, 'never'))
      }),
    )
    expect(error).toBe(seen?.signal.reason)
  })

  test('returns the value or error of a function that releases its lease itself', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const value = await lockstep.lease(name, {}, async (lease) => {
      await lease.release()
      expect(() => lease.assertHeld()).toThrow(LeaseLostError)
      const refused = await failureOf(lease.transaction({}, (tx) => note(tx, 'never')))
      expect(refused).toMatchObject({ reason: 'released' })
      return 'done'
    })
    expect(value).toBe('done')
    const error = await failureOf(
      lockstep.lease(name, {}, async (lease) => {
        await lease.release()
        throw new Error('afterwards')
      }),
    )
    expect(String(error)).toContain('afterwards')
  })

  test('rejects a release after the trust has ended, even if no timer has noticed', async () => {
    const { lockstep } = bench.open(driver)
    const name = fresh()
    const events: string[] = []
    const stops = (['lease.lost', 'lease.released'] as const).map((event) =>
      on(event, (message) => message.key === name && events.push(event)),
    )
    const error = await failureOf(
      lockstep.lease(name, { ttlMs: 300 }, async (lease) => {
        standStill(400)
        await lease.release()
        return 'made while another caller can have had it'
      }),
    )
    for (const stop of stops) stop()
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'not renewed in time' })
    expect(events).toEqual(['lease.lost'])
  })
})
