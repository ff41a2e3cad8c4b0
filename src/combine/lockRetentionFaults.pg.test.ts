import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { hold, type ProxyConnection } from '../testing/index.ts'
import { type DriverName, DRIVERS, failureOf, firstCall, testBench } from '../../tools/server/testing/workbench.ts'
import { type Combined, key, type Lockstep } from '../index.ts'
import { on } from '../observe/index.ts'

/** A session that keeps the lock between batches, and what can go wrong then: no caller can be kept waiting for long. */

const bench = await testBench()
const HOT = key`Account:hot`

beforeAll(() => bench.admin.query('CREATE TABLE done (id integer PRIMARY KEY)'))
beforeEach(() => bench.admin.query('TRUNCATE done'))

type Before = (id: number) => Promise<void> | void

/** One item a batch, so that batches follow one another. */
function combined(lockstep: Lockstep, before: Before = () => undefined): Combined<number, number> {
  return lockstep.combine<number, number>({
    key: () => HOT,
    maxBatch: 1,
    async run(tx, [id = 0]) {
      await before(id)
      await tx.query('INSERT INTO done VALUES ($1)', [id])
      return [id]
    },
  })
}

/** One call that finds the lock taken, so that the next ones expect to wait. The other calls queue with it. */
async function afterContention(other: Lockstep, ...calls: readonly (() => Promise<unknown>)[]): Promise<void> {
  const { release: letGo } = await hold(other, HOT)
  const calling = Promise.all(calls.map((call) => call()))
  calling.catch(() => undefined)
  await bench.waiters(1)
  await letGo()
  await calling
}

/** Contention is expected for moments only: on a machine that is busy it may take some rounds until a session stays. */
async function untilStayed(
  driver: DriverName,
  stayed: () => boolean,
  round: (other: Lockstep, first: number) => Promise<void>,
): Promise<void> {
  const other = bench.open(driver).lockstep
  for (let first = 1; !stayed() && first < 60; first += 3) await round(other, first)
  expect(stayed()).toBe(true)
}

describe.each(DRIVERS)('faults during lock retention, %s', (driver) => {
  test('gives others their turn while batches only fail', async () => {
    const { lockstep } = bench.open(driver)
    const other = bench.open(driver).lockstep
    const ended = new AbortController()
    const call = combined(lockstep, (id) => {
      if (id < 0) throw new Error('not this one')
    })
    const failing = async (): Promise<void> => {
      while (!ended.signal.aborted) await failureOf(call(-1))
    }
    await afterContention(other, () => call(1))
    const takeTurn = (): Promise<string> => other.transaction({ lock: HOT, waitMs: 2000 }, async () => 'had it')
    let begun: Promise<void> | undefined
    const turn = new Promise<string>((resolve) => {
      begun = afterContention(other, () => call(2).then(() => resolve(takeTurn())), failing, failing)
    })
    try {
      expect(await turn).toBe('had it')
    } finally {
      ended.abort()
      await begun
    }
  })

  test('retains no lock during the pause before a retry', async () => {
    const proxy = await bench.proxy()
    let seen = { kept: 0, given: 0 }
    proxy.onClientData((chunk) => {
      if (chunk.includes('pg_advisory_lock(')) seen.kept++
      if (chunk.includes('pg_advisory_unlock(')) seen.given++
      return 'forward'
    })
    const atRetry: unknown[] = []
    const stop = on('transaction.retried', () => atRetry.push({ ...seen }))
    let conflicts = 0
    const before: Before = () => {
      if (seen.kept > seen.given && conflicts++ === 0) throw Object.assign(new Error('again'), { code: '40001' })
    }
    try {
      await untilStayed(
        driver,
        () => conflicts > 0,
        async (other, first) => {
          // postgres.js says a statement only once to a session.
          const { lockstep } = bench.open(driver, { url: proxy.url(bench.url) })
          await firstCall(lockstep)
          seen = { kept: 0, given: 0 }
          const call = combined(lockstep, before)
          await afterContention(other, () => call(first))
          await afterContention(
            other,
            () => call(first + 1),
            () => call(first + 2),
          )
        },
      )
    } finally {
      stop()
    }
    expect(atRetry).toEqual([{ kept: 1, given: 1 }])
  })

  test('frees the lock when the answer to its COMMIT is lost', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 300 })
    await firstCall(lockstep)
    const call = combined(lockstep)
    let keeping: ProxyConnection | undefined
    let silenced = false
    proxy.onClientData((chunk, connection) => {
      if (chunk.includes('pg_advisory_lock(')) keeping ??= connection
      return 'forward'
    })
    proxy.onServerData((chunk, connection) => {
      if (silenced || connection !== keeping || !chunk.includes('COMMIT\0')) return 'forward'
      silenced = true
      connection.silence()
      return 'hold'
    })
    await untilStayed(
      driver,
      () => silenced,
      async (other, first) => {
        for (const id of [first, first + 1]) await afterContention(other, () => call(id))
      },
    )
    await expect.poll(() => bench.locksHeld()).toBe(0)
    expect(await call(0)).toBe(0)
  })

  test('does not wait for a silent session that keeps the lock', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { silenceMs: 300 })
    await firstCall(lockstep)
    const call = combined(lockstep)
    let keeping: ProxyConnection | undefined
    let committed = false
    let silenced = false
    proxy.onClientData((chunk, connection) => {
      if (committed && !silenced && connection === keeping) {
        silenced = true
        connection.silence()
        return 'hold'
      }
      if (chunk.includes('pg_advisory_lock(')) keeping ??= connection
      return 'forward'
    })
    proxy.onServerData((chunk, connection) => {
      if (connection === keeping && chunk.includes('COMMIT\0')) committed = true
      return 'forward'
    })
    await untilStayed(
      driver,
      () => silenced,
      async (other, first) => {
        await afterContention(other, () => call(first))
        await afterContention(
          other,
          () => call(first + 1),
          () => call(first + 2),
        )
      },
    )
  })

  test('does not wait for rollout rules while it keeps the lock', async () => {
    const { proxy, lockstep } = await bench.proxied(driver, { rollout: 'database' })
    const other = bench.open(driver).lockstep
    let readings = 0
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('rollout') || ++readings === 1) return 'forward'
      connection.silence()
      return 'hold'
    })
    const ended = new AbortController()
    let id = 0
    const call = combined(lockstep)
    const callers = Array.from({ length: 4 }, async () => {
      while (!ended.signal.aborted) await call(id++).catch(() => undefined)
    })
    const used = (): Promise<unknown> => other.transaction({ lock: HOT, waitMs: 15_000 }, (tx) => tx.query('SELECT 1'))
    // The first rules are too old after three seconds.
    const haveBeenRead = (): boolean => readings >= 2
    while (!haveBeenRead()) await used()
    for (let n = 0; n < 5; n++) await used()
    ended.abort()
    expect(readings).toBe(2)
    // A caller that reads them again does not wait for the end of its budget.
    proxy.onClientData(undefined)
    proxy.cutAll()
    await Promise.all(callers)
  })

  test('prepares no statement per key', async () => {
    const { proxy, lockstep, query } = await bench.proxied(driver, { max: 2 })
    await firstCall(lockstep)
    const other = bench.open(driver).lockstep
    const seen = { kept: 0 }
    proxy.onClientData((chunk) => {
      // In a message of its own: no further call arrived.
      if (chunk.includes('pg_advisory_unlock(')) seen.kept++
      return 'forward'
    })
    const call = lockstep.combine<number, number>({ key: (id) => key`Account:${id}`, run: async (_, ids) => [...ids] })
    for (let id = 0; seen.kept < 4 && id < 40; id++) {
      for (let n = 0; n < 2; n++) {
        const { release: letGo } = await hold(other, key`Account:${id}`)
        const calling = call(id)
        await bench.waiters(1)
        await letGo()
        await calling
      }
    }
    await expect.poll(() => bench.locksHeld()).toBe(0)
    expect(seen.kept).toBeGreaterThanOrEqual(4)
    // Both sessions at once.
    const look = `SELECT count(*)::int AS n, pg_sleep(0.2) FROM pg_prepared_statements WHERE statement LIKE '%pg\\_advisory\\_lock%'`
    const counts = await Promise.all([query(look), query(look)])
    for (const [row] of counts) expect(row?.['n']).toBeLessThanOrEqual(1)
  })
})
