import { beforeAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { DRIVERS, signal, testBench, workbench } from '../../tools/server/testing/workbench.ts'
import { on } from '../observe/index.ts'
import { hold } from '../testing/index.ts'

/** Timeouts that an administrator has set for the role or the database. */

const bench = await testBench()

/** Every session of it gives up on any lock after a moment, as a careful administrator may have set it for a role. */
const hasty = await testDatabase()
beforeAll(() => bench.admin.query(`ALTER DATABASE ${hasty.name} SET lock_timeout = '150ms'`))
const hastyBench = workbench(hasty)

const ISOLATIONS = ['read committed', 'serializable'] as const
const ROUTES = hasty.pooledUrl === undefined ? (['direct'] as const) : (['direct', 'pooled'] as const)

describe.each(DRIVERS)('a lock_timeout that strikes while a lock is handed over, %s', (driver) => {
  test.each(ROUTES)('leaves no lock, and another process gets the key, %s', async (route) => {
    const url = (route === 'direct' ? hasty.url : hasty.pooledUrl) as string
    const victim = hastyBench.open(driver, { url })
    const other = hastyBench.open(driver)
    // Both are ready, and neither has read the server epoch of its connection yet.
    for (const { lockstep } of [victim, other]) await lockstep.transaction({ retry: false }, async () => undefined)
    const blocker = await hastyBench.admin.connect()
    const struck = signal()
    const stop = on('lock.contended', () => struck.give())
    try {
      await blocker.query('BEGIN; LOCK TABLE lockstep.incarnation IN ACCESS EXCLUSIVE MODE')
      const outcome = victim.lockstep
        .transaction({ lock: 'Order:1', isolation: 'serializable', waitMs: 20_000 }, async () => 'ran')
        .catch((error: unknown) => (error as { code?: string }).code)
      await Promise.race([struck.given, outcome])
      // A call that does not look up a lost COMMIT does not need the server epoch.
      const free = other.lockstep.transaction({ lock: 'Order:1', waitMs: 0, retry: false }, async () => 'free')
      expect(await free).toBe('free')
      await blocker.query('ROLLBACK')
      expect(['ran', '55P03']).toContain(await outcome)
      expect(await hastyBench.locksHeld()).toBe(0)
    } finally {
      stop()
      await blocker.query('ROLLBACK')
      blocker.release()
    }
  })
})

describe.each(DRIVERS)('a wait that is longer than the limits of the role, %s', (driver) => {
  const WAITING = `SELECT a.xact_start::text AS begun, clock_timestamp() - a.query_start > interval '300 ms' AS long
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
   WHERE l.locktype = 'advisory' AND NOT l.granted AND a.datname = current_database()`

  /** Longer than the limit in one statement, or in so many of them that the limit is over for certain. */
  async function waitedForLong(): Promise<void> {
    const begun = new Set<string>()
    const seen = async (): Promise<boolean> => {
      const { rows } = await bench.admin.query<{ begun: string; long: boolean }>(WAITING)
      for (const row of rows) begun.add(row.begun)
      return begun.size > 4 || rows.some((row) => row.long)
    }
    await expect.poll(seen).toBe(true)
  }

  async function isKnown(setting: string): Promise<boolean> {
    return (await bench.admin.query('SELECT FROM pg_settings WHERE name = $1', [setting])).rowCount === 1
  }

  const cases = ISOLATIONS.flatMap((isolation) =>
    ['statement_timeout', 'transaction_timeout'].map((setting) => ({ setting, isolation })),
  )
  test.each(cases)('is not ended by $setting, $isolation', async ({ setting, isolation }) => {
    // transaction_timeout came with PostgreSQL 17.
    if (!(await isKnown(setting))) return
    const url = new URL(bench.url)
    url.searchParams.set('options', `-c ${setting}=200`)
    const waiter = bench.open(driver, { url: url.href })
    // On a busy machine the first call, which looks at the schema, can take longer than the limit.
    const ready = (): Promise<string> => waiter.lockstep.transaction({}, async () => 'ready').catch(String)
    await expect.poll(ready).toBe('ready')
    const { release: letGo } = await hold(bench.open(driver).lockstep, 'Order:1')
    // A retry would hide that the session was ended.
    const options = { lock: 'Order:1', isolation, waitMs: 20_000, retry: { attempts: 1 } } as const
    const waiting = waiter.lockstep.transaction(options, async (tx) => {
      const { rows } = await tx.query<{ limit: string }>(`SELECT current_setting('${setting}') AS limit`)
      return rows[0]?.limit
    })
    // Looked at by the assertion below; until then it may fail unseen.
    waiting.catch(() => undefined)
    await Promise.race([waitedForLong(), waiting])
    await letGo()
    // What the caller's own statements may take is still the caller's to say.
    expect(await waiting).toBe('200ms')
  })
})
