import { setImmediate as turn } from 'node:timers/promises'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type TestDatabase } from '../../tools/server/testDatabase.ts'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import { LockAbortedError, Lockstep, LockTimeoutError } from '../index.ts'
import { key } from '../locks/index.ts'

/** Which way the suite goes to the server. */
export interface LockSuiteSetting {
  readonly driver: 'pg' | 'postgres'
  readonly route: 'direct' | 'behind a busy PgBouncer'
}

/** A promise that is kept by hand. */
interface Signal {
  readonly given: Promise<void>
  give(): void
}

function signal(): Signal {
  let give = (): void => undefined
  const given = new Promise<void>((resolve) => (give = resolve))
  return { given, give }
}

const POOL_SIZE = 4
const BUSY_CLIENTS = 6

/**
 * What every caller of every driver on every route may rely on. Each `Lockstep` has a pool of its own, so that two of them meet at
 * the server as two processes would.
 */
export function lockSuite(database: TestDatabase, { driver, route }: LockSuiteSetting): void {
  describe(`${driver}, ${route}`, () => {
    const url = route === 'direct' ? database.url : (database.pooledUrl as string)
    const open: { close(): Promise<void> }[] = []
    let one: Lockstep
    let other: Lockstep
    let admin: pg.Pool
    let number = 0
    let lock: ReturnType<typeof key>

    function lockstep(): Lockstep {
      const pool =
        driver === 'pg'
          ? new pg.Pool({ connectionString: url, max: POOL_SIZE })
          : postgres(url, { max: POOL_SIZE, prepare: false, onnotice: () => undefined })
      const made = new Lockstep(pool) as unknown as Lockstep
      open.push({ close: () => made.close().then(() => pool.end()) })
      return made
    }

    /** Resolves once a session waits at the server for the lock. */
    async function somebodyWaits(): Promise<void> {
      const question = `SELECT count(*)::int AS n FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = $1`
      for (;;) {
        const { rows } = await admin.query<{ n: number }>(question, [database.name])
        if ((rows[0]?.n ?? 0) > 0) return
        await turn()
      }
    }

    /** Holds the lock until it is released. */
    async function hold(holder: Lockstep, mode: 'lock' | 'lockShared' = 'lock'): Promise<() => Promise<void>> {
      const [held, letGo] = [signal(), signal()]
      const holding = holder.transaction({ [mode]: lock }, async () => {
        held.give()
        await letGo.given
      })
      await Promise.race([held.given, holding])
      return async () => {
        letGo.give()
        await holding
      }
    }

    const nothing = (): Promise<void> => Promise.resolve()

    beforeAll(async () => {
      admin = new pg.Pool({ connectionString: database.url })
      open.push({ close: () => admin.end() })
      one = lockstep()
      other = lockstep()
      await one.migrate()
      await admin.query('CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, balance int NOT NULL)')
      if (route === 'direct') return
      // Others use the pooler's server connections all the time, so that ours never come back by themselves.
      const busyness = { goesOn: true }
      const busy = Array.from({ length: BUSY_CLIENTS }, async () => {
        const client = new pg.Client({ connectionString: url })
        await client.connect()
        while (busyness.goesOn) await client.query('BEGIN; SELECT 1; COMMIT')
        await client.end()
      })
      open.push({ close: async () => ((busyness.goesOn = false), void (await Promise.all(busy))) })
    })

    beforeEach(() => {
      lock = key`Account:${driver}:${++number}`
    })

    afterAll(async () => {
      for (const each of open.toReversed()) await each.close()
    })

    test('commits the work of the function and returns its result', async () => {
      const id = Math.floor(Math.random() * 1e9)
      const value = await one.transaction({ lock }, async (tx) => {
        await tx.query('INSERT INTO account VALUES ($1, 7)', [id])
        return 'done'
      })
      expect(value).toBe('done')
      const { rows } = await admin.query('SELECT balance FROM account WHERE id = $1', [id])
      expect(rows).toEqual([{ balance: 7 }])
    })

    test('rolls back when the function throws, and the lock is free at once', async () => {
      const id = Math.floor(Math.random() * 1e9)
      const attempt = one.transaction({ lock }, async (tx) => {
        await tx.query('INSERT INTO account VALUES ($1, 7)', [id])
        throw new Error('insufficient funds')
      })
      await expect(attempt).rejects.toThrow('insufficient funds')
      const { rows } = await admin.query('SELECT balance FROM account WHERE id = $1', [id])
      expect(rows).toEqual([])
      await other.transaction({ lock, waitMs: 0 }, nothing)
    })

    test.each(['read committed', 'repeatable read', 'serializable'] as const)(
      '%s: the second holder reads what the first committed, though it called earlier',
      async (isolation) => {
        const id = Math.floor(Math.random() * 1e9)
        await admin.query('INSERT INTO account VALUES ($1, 0)', [id])
        const letGo = signal()
        const first = signal()
        const writing = one.transaction({ lock, isolation }, async (tx) => {
          await tx.query('SELECT 1')
          first.give()
          await letGo.given
          await tx.query('UPDATE account SET balance = balance + 1 WHERE id = $1', [id])
        })
        await first.given
        const reading = other.transaction({ lock, isolation, retry: false }, async (tx) => {
          const { rows } = await tx.query<{ balance: number; level: string }>(
            `SELECT balance, current_setting('transaction_isolation') AS level FROM account WHERE id = $1`,
            [id],
          )
          await tx.query('UPDATE account SET balance = $2 WHERE id = $1', [id, (rows[0]?.balance ?? 0) + 1])
          return rows[0]
        })
        await somebodyWaits()
        letGo.give()
        await writing
        expect(await reading).toEqual({ balance: 1, level: isolation })
      },
    )

    test('admits shared holders together, and makes exclusive and shared ones wait for each other', async () => {
      const letGo = await hold(one, 'lockShared')
      await other.transaction({ lockShared: lock, waitMs: 0 }, nothing)
      await expect(other.transaction({ lock, waitMs: 0 }, nothing)).rejects.toBeInstanceOf(LockTimeoutError)
      await letGo()
      const letGoAgain = await hold(one)
      await expect(other.transaction({ lockShared: lock, waitMs: 0 }, nothing)).rejects.toBeInstanceOf(LockTimeoutError)
      await letGoAgain()
      await other.transaction({ lockShared: lock, waitMs: 0, isolation: 'serializable' }, nothing)
    })

    test.each(['read committed', 'serializable'] as const)(
      '%s: releases the locks that were granted before a timeout',
      async (isolation) => {
        const letGo = await hold(one)
        const free = [key`Free:${number}`, key`Also:${number}`, key`More:${number}`]
        // Long enough for a connection of a busy machine: what is left of it is spent at the server.
        const error = await failureOf(other.transaction({ lock: [lock, ...free], isolation, waitMs: 1500 }, nothing))
        await letGo()
        expect(error).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: 'server' })
        // The server of a busy machine may roll back after the caller has its answer.
        await one.transaction({ lock: free, waitMs: 10_000 }, nothing)
      },
    )

    test('names the holder in a timeout', async () => {
      const letGo = await hold(one)
      const timeOut = async (): Promise<LockTimeoutError> =>
        (await other.transaction({ lock, waitMs: 300 }, nothing).catch((caught: unknown) => caught)) as LockTimeoutError
      const error = await timeOut()
      expect(error).toBeInstanceOf(LockTimeoutError)
      const { keys, advice, waitedMs } = error
      expect(keys).toEqual([lock])
      // Behind a busy pooler the question for the holder can come too late.
      await expect
        .poll(async () => (await timeOut()).holders)
        .toMatchObject([{ where: 'server', key: lock, state: 'idle in transaction' }])
      await letGo()
      expect(advice).not.toBe('')
      expect(waitedMs).toBeGreaterThanOrEqual(299)
    })

    test.each(['read committed', 'serializable'] as const)(
      '%s: ends the wait on abort and leaves nothing',
      async (isolation) => {
        const letGo = await hold(one)
        const controller = new AbortController()
        const waiting = other.transaction({ lock, isolation, signal: controller.signal }, nothing)
        const outcome = waiting.catch((error: unknown) => error)
        await somebodyWaits()
        controller.abort(new Error('no longer wanted'))
        const error = await outcome
        expect(error).toBeInstanceOf(LockAbortedError)
        expect((error as LockAbortedError).cause).toEqual(new Error('no longer wanted'))
        const waiters = async (): Promise<number | null> => {
          const { rowCount } = await admin.query(
            `SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
          WHERE locktype = 'advisory' AND NOT granted AND datname = $1`,
            [database.name],
          )
          return rowCount
        }
        // The caller does not wait for a server that is slow to end its wait.
        await expect.poll(waiters).toBe(0)
        await letGo()
        await one.transaction({ lock, waitMs: 0 }, nothing)
      },
    )

    test('ends a wait when the lock is free, in any slice', async () => {
      const letGo = await hold(one)
      const waiting = other.transaction({ lock }, () => Promise.resolve('granted'))
      await somebodyWaits()
      await letGo()
      expect(await waiting).toBe('granted')
    })

    test('serves callers of one process in order of arrival', async () => {
      const served: number[] = []
      const letGo = await hold(one)
      const callers = Array.from({ length: 10 }, (_, caller) =>
        one.transaction({ lock }, () => Promise.resolve(void served.push(caller))),
      )
      await letGo()
      await Promise.all(callers)
      expect(served).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    })

    test('keeps the settings of the caller after a wait', async () => {
      const show = `SELECT current_setting('lock_timeout') AS lock, current_setting('client_connection_check_interval') AS check`
      const before = await other.transaction({}, async (tx) => (await tx.query(show)).rows)
      const letGo = await hold(one)
      const waiting = other.transaction({ lock }, async (tx) => (await tx.query(show)).rows)
      await somebodyWaits()
      await letGo()
      expect(await waiting).toEqual(before)
      const serializable = await other.transaction(
        { lock, isolation: 'serializable' },
        async (tx) => (await tx.query(show)).rows,
      )
      expect(serializable).toEqual(before)
    })

    test('leaves connections free for other keys and plain transactions while callers wait', async () => {
      const keys = Array.from({ length: 3 * POOL_SIZE }, (_, each) => key`Crowded:${number}:${each}`)
      const letGo = signal()
      const held = signal()
      const holding = one.transaction({ lock: keys }, async () => {
        held.give()
        await letGo.given
      })
      await held.given
      const waiting = keys.map((each) => other.transaction({ lock: each }, () => Promise.resolve(each)))
      await somebodyWaits()
      expect(await other.transaction({ lock: key`Free:${number}` }, () => Promise.resolve('served'))).toBe('served')
      letGo.give()
      await holding
      expect(await Promise.all(waiting)).toEqual(keys)
    })
  })
}
