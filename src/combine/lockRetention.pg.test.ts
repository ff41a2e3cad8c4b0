import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { hold, type Proxy } from '../testing/index.ts'
import { DRIVERS, firstCall, testBench } from '../../tools/server/testing/workbench.ts'
import { type Combined, key, type Lockstep } from '../index.ts'

/** Batches that follow one another while other processes wait: the session keeps the lock between them, and never for good. */

const bench = await testBench()
const HOT = key`Account:hot`

beforeAll(() => bench.admin.query('CREATE TABLE done (id integer PRIMARY KEY)'))
beforeEach(() => bench.admin.query('TRUNCATE done'))

function combined(lockstep: Lockstep): Combined<number, number> {
  return lockstep.combine<number, number>({
    key: () => HOT,
    async run(tx, ids) {
      await tx.queryAtCommit(`INSERT INTO done SELECT id::int FROM unnest(string_to_array($1, ',')) AS id`, [
        ids.join(),
      ])
      return [...ids]
    },
  })
}

const count = async (): Promise<number | undefined> =>
  (await bench.admin.query<{ n: number }>('SELECT count(*)::int AS n FROM done')).rows[0]?.n

/** Counts how often a session is asked to keep the lock, and to release it. */
function watch(proxy: Proxy): { kept: number; given: number } {
  const seen = { kept: 0, given: 0 }
  proxy.onClientData((chunk) => {
    if (chunk.includes('pg_advisory_lock(')) seen.kept++
    if (chunk.includes('pg_advisory_unlock(')) seen.given++
    return 'forward'
  })
  return seen
}

/** One call that finds the lock taken, so that more of the kind are expected. */
async function afterContention(call: () => Promise<unknown>, other: Lockstep): Promise<void> {
  const { release: letGo } = await hold(other, HOT)
  const calling = call()
  await bench.waiters(1)
  await letGo()
  await calling
}

describe.each(DRIVERS)('lock retention, %s', (driver) => {
  test('does everything once for two processes on one key, and leaves no lock', async () => {
    const proxy = await bench.proxy()
    const locksteps = [0, 1].map(() => bench.open(driver, { max: 4, url: proxy.url(bench.url) }).lockstep)
    for (const lockstep of locksteps) await firstCall(lockstep)
    const seen = watch(proxy)
    const calls = locksteps.map((lockstep) => combined(lockstep))
    await Promise.all(
      calls.flatMap((call, process) =>
        Array.from({ length: 8 }, async (_, caller) => {
          for (let n = 0; n < 40; n++) {
            const id = (process * 8 + caller) * 40 + n
            expect(await call(id)).toBe(id)
          }
        }),
      ),
    )
    expect(await count()).toBe(640)
    expect(seen.kept).toBeGreaterThan(0)
    await expect.poll(() => bench.locksHeld()).toBe(0)
    // postgres.js says a statement only once to a session.
    if (driver === 'pg') expect(seen.given).toBe(seen.kept)
  })

  test('releases the lock and the connection when no call follows', async () => {
    const proxy = await bench.proxy()
    const { lockstep, query } = bench.open(driver, { max: 2, url: proxy.url(bench.url) })
    await firstCall(lockstep)
    const seen = watch(proxy)
    const [call, other] = [combined(lockstep), bench.open(driver).lockstep]
    // The first one learns that others are in the way, and forgets it after a quarter of a second: on a busy machine before the next one.
    for (let n = 0; seen.kept === 0; n++) await afterContention(() => call(1 + (n % 2)), other)
    await expect.poll(() => bench.locksHeld()).toBe(0)
    expect(seen).toEqual({ kept: 1, given: 1 })
    // Both connections are there again.
    await Promise.all([query('SELECT 1'), query('SELECT 1')])
    await lockstep.close()
  })

  test('ends a session whose process stands still, and restores its settings', async () => {
    const { lockstep, query } = bench.open(driver, { max: 2 })
    const idle = async (run: (text: string) => Promise<unknown>): Promise<unknown> =>
      run(`SELECT current_setting('idle_session_timeout') AS idle`)
    const other = bench.open(driver).lockstep
    const seen: unknown[] = []
    const call = lockstep.combine<number, number>({
      key: () => HOT,
      async run(tx, ids) {
        seen.push(await idle(async (text) => (await tx.query<{ idle: string }>(text)).rows[0]?.idle))
        return [...ids]
      },
    })
    while (!seen.includes('5s')) {
      await afterContention(() => call(0), other)
      await afterContention(() => call(1).then(() => call(2)), other)
    }
    expect(new Set(seen)).toEqual(new Set(['0', '5s']))
    await expect.poll(() => bench.locksHeld()).toBe(0)
    expect(await Promise.all([idle(query), idle(query)])).toEqual([[{ idle: '0' }], [{ idle: '0' }]])
  })

  test('gives a transaction of the same process on the same key its turn', async () => {
    const { lockstep } = bench.open(driver, { max: 4 })
    const call = combined(lockstep)
    const other = bench.open(driver).lockstep
    for (const first of [-1, 0]) await afterContention(() => call(first), other)
    let id = 1
    const callers = Array.from({ length: 4 }, async () => {
      for (let n = 0; n < 50; n++) await call(id++)
    })
    for (let n = 0; n < 10; n++) await lockstep.transaction({ lock: HOT }, (tx) => tx.query('SELECT 1'))
    await Promise.all(callers)
    expect(await count()).toBe(202)
    await expect.poll(() => bench.locksHeld()).toBe(0)
  })

  test('rejects only the callers of a batch that fails while the session keeps the lock', async () => {
    const { lockstep } = bench.open(driver, { max: 4 })
    const call = combined(lockstep)
    const other = bench.open(driver).lockstep
    for (const first of [0, 1]) await afterContention(() => call(first), other)
    const results = await Promise.allSettled([call(2), call(1), call(3)])
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(await call(4)).toBe(4)
    expect(await count()).toBe(5)
    await expect.poll(() => bench.locksHeld()).toBe(0)
  })

  test('continues on another session when the one that keeps the lock is terminated', async () => {
    const { lockstep } = bench.open(driver, { max: 4 })
    const call = combined(lockstep)
    const other = bench.open(driver).lockstep
    for (const first of [-1, 0]) await afterContention(() => call(first), other)
    let id = 1
    const callers = Array.from({ length: 4 }, async () => {
      for (let n = 0; n < 60; n++) await call(id++)
    })
    const terminate = `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
    for (let n = 0; n < 5; n++) await bench.admin.query(terminate)
    await Promise.all(callers)
    expect(await count()).toBe(242)
    await expect.poll(() => bench.locksHeld()).toBe(0)
  })

  test('retains no lock with a pool of one or behind a pooler', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { max: 1, url: proxy.url(bench.url) })
    await firstCall(lockstep)
    const seen = watch(proxy)
    const [call, other] = [combined(lockstep), bench.open(driver).lockstep]
    for (const id of [1, 2]) await afterContention(() => call(id), other)
    expect(seen).toEqual({ kept: 0, given: 0 })
    if (bench.pooledUrl === undefined) return
    const pooled = bench.open(driver, { max: 4, url: bench.pooledUrl })
    const callPooled = combined(pooled.lockstep)
    for (const id of [3, 4]) await afterContention(() => callPooled(id), other)
    expect(await bench.locksHeld()).toBe(0)
  })
})
