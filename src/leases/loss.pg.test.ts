import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Lease, LeaseLostError } from '../index.ts'
import { on } from '../observe/index.ts'

const bench = await testBench()

let names = 0
const fresh = () => key`Loss:${++names}`

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
  test('a leader whose function rejects with an AbortError after the loss stands again', async () => {
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

  test('a leader whose function fails while it holds the lease ends with that error', async () => {
    const { lockstep } = bench.open(driver)
    const error = await failureOf(lockstep.leader(fresh(), {}, () => Promise.reject(new Error('no more work'))))
    expect(String(error)).toContain('no more work')
  })

  test('a leader whose process stood still past its trust stands again, whatever its function throws', async () => {
    const { lockstep } = bench.open(driver)
    let terms = 0
    const value = await lockstep.leader(fresh(), { ttlMs: 300 }, async () => {
      if (++terms === 2) return terms
      standStill(400)
      return Promise.reject(new Error('timeout of something else'))
    })
    expect(value).toBe(2)
  })

  test('a leader that is closed ends with LeaseLostError, and the function’s error is its cause', async () => {
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

  test('a leader whose own signal ends its function gets that error, and does not stand again', async () => {
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

  test('lease() is LeaseLostError after a loss, with what the function threw as its cause', async () => {
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

  test('lease() gives the LeaseLostError that the function threw as it is', async () => {
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

  test('a lease that its function releases is not lost: lease() returns the value, or rejects with its error', async () => {
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

  test('a lease that is released after its trust had ended is lost, though no timer has noticed', async () => {
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
        return 'made while somebody else may have had it'
      }),
    )
    for (const stop of stops) stop()
    expect(error).toBeInstanceOf(LeaseLostError)
    expect(error).toMatchObject({ reason: 'not renewed in time' })
    expect(events).toEqual(['lease.lost'])
  })
})
