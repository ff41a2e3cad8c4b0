import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { setImmediate as turn } from 'node:timers/promises'
import pg from 'pg'
import type { Sql } from 'postgres'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  type Client,
  DRIVERS,
  failureOf,
  holding,
  note,
  signal,
  testBench,
  workbench,
} from '../../tools/server/testing/workbench.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import {
  LockAbortedError,
  LockTimeoutError,
  type Transaction,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../index.ts'
import { on } from '../observe/index.ts'

/** Orders of events that once broke a promise. Each test makes its order happen; none hopes for it. */

const bench = await testBench()

/** Every session of it gives up on any lock after a moment, as a careful administrator may have set it for a role. */
const hasty = await testDatabase()
beforeAll(() => bench.admin.query(`ALTER DATABASE ${hasty.name} SET lock_timeout = '150ms'`))
const hastyBench = workbench(hasty)

const ISOLATIONS = ['read committed', 'serializable'] as const

/** Takes connections out of the pool, as somebody does who works beside Lockstep. */
async function takeOut({ pool }: Client, count: number): Promise<() => void> {
  const taken = await Promise.all(
    Array.from({ length: count }, () => (pool instanceof pg.Pool ? pool.connect() : pool.reserve())),
  )
  return () => taken.forEach((each) => each.release())
}

describe.each(DRIVERS)('a savepoint that outlives its transaction, %s', (driver) => {
  /** Fails beside a savepoint that is still at work; the answer lets that go on, and waits for its end. */
  async function leaveSavepointBehind({ lockstep }: Client): Promise<() => Promise<unknown>> {
    const [opened, goOn] = [signal(), signal()]
    let stray: Promise<unknown> = Promise.resolve()
    const culprit = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      stray = failureOf(
        tx.savepoint(async (inner) => {
          await note(inner, 'stray')
          opened.give()
          await goOn.given
        }),
      )
      await opened.given
      throw new Error('the sibling failed')
    })
    await expect(culprit).rejects.toThrow('the sibling failed')
    return async () => {
      goOn.give()
      return stray
    }
  }

  const victims: Record<string, (tx: Transaction, meanwhile: () => Promise<unknown>) => Promise<unknown>> = {
    'a plain transaction': (_, meanwhile) => meanwhile(),
    'one in a savepoint of its own': (tx, meanwhile) =>
      tx.savepoint(async (inner) => {
        await note(inner, 'in a savepoint')
        return meanwhile()
      }),
    'one with a savepoint that its caller named': async (tx, meanwhile) => {
      await tx.query('SAVEPOINT lockstep_1')
      await note(tx, 'in a savepoint')
      return meanwhile()
    },
  }

  test.each(Object.keys(victims))("does not touch the connection's next user: %s", async (kind) => {
    const client = bench.open(driver, { max: 1 })
    const letStrayEnd = await leaveSavepointBehind(client)
    await client.lockstep.transaction({ lock: 'Stock:1', retry: false }, async (tx) => {
      await note(tx, 'before')
      const stray = await victims[kind]?.(tx, letStrayEnd)
      expect(stray).toBeInstanceOf(TransactionEndedError)
      await note(tx, 'then')
    })
    expect((await bench.notes()).filter((each) => each !== 'in a savepoint')).toEqual(['before', 'then'])
    expect(await bench.notes()).toHaveLength(kind === 'a plain transaction' ? 2 : 3)
  })

  test('of an inner transaction that nobody awaited, no half is written', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const [half, goOn] = [signal(), signal()]
    let inner: Promise<unknown> = Promise.resolve()
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'outer')
      inner = failureOf(
        tx.transaction({ lock: 'Order:1' }, async (part) => {
          await note(part, 'taken from one')
          half.give()
          await goOn.given
          await note(part, 'given to the other')
        }),
      )
      await half.given
      return 'done'
    })
    expect(await failureOf(outer)).toBeInstanceOf(TransactionRolledBackError)
    goOn.give()
    expect(await inner).toBeInstanceOf(TransactionEndedError)
    expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'next')).toBe('next')
    expect(await bench.notes()).toEqual([])
  })

  test('a query beside an open savepoint is kept, though that fails', async () => {
    const { lockstep } = bench.open(driver)
    const [opened, asked] = [signal(), signal()]
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const optional = tx.savepoint(async (inner) => {
        await note(inner, 'undone')
        opened.give()
        await asked.given
        await inner.query('SELECT 1')
        throw new Error('the optional part')
      })
      const beside = opened.given.then(() => {
        const kept = note(tx, 'kept')
        asked.give()
        return kept
      })
      const [first, second] = await Promise.allSettled([optional, beside])
      expect([first.status, second.status]).toEqual(['rejected', 'fulfilled'])
    })
    expect(await bench.notes()).toEqual(['kept'])
  })
})

const ROUTES = hasty.pooledUrl === undefined ? (['direct'] as const) : (['direct', 'pooled'] as const)

describe.each(DRIVERS)('a lock_timeout that strikes in a hand-over, %s', (driver) => {
  test.each(ROUTES)('%s: leaves no lock, and another process gets the key', async (route) => {
    const url = (route === 'direct' ? hasty.url : hasty.pooledUrl) as string
    const victim = hastyBench.open(driver, { url })
    const other = hastyBench.open(driver)
    // Both are ready, and neither knows yet in which life of the server its connection is.
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
      // Without a look into a lost COMMIT nobody has to know the life.
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

describe.each(DRIVERS)('a pool that is used up, %s', (driver) => {
  test.each(['waitMs', 'signal'] as const)(
    'of two callers in one tick with one idle connection, the second is held to its %s',
    async (limit) => {
      const client = bench.open(driver, { max: 2 })
      const { lockstep } = client
      await Promise.all([1, 2].map(() => lockstep.transaction({}, (tx) => tx.query('SELECT 1'))))
      const returnToPool = await takeOut(client, 1)
      const [inside, finish] = [signal(), signal()]
      const controller = new AbortController()
      const first = lockstep.transaction({ lock: 'Order:1' }, async () => {
        inside.give()
        await finish.given
      })
      const second = failureOf(
        lockstep.transaction(
          { lock: 'Stock:1', ...(limit === 'waitMs' ? { waitMs: 100 } : { signal: controller.signal }) },
          async () => 'ran',
        ),
      )
      await inside.given
      if (limit === 'signal') controller.abort()
      expect(await second).toBeInstanceOf(limit === 'waitMs' ? LockTimeoutError : LockAbortedError)
      finish.give()
      await first
      returnToPool()
      expect(await lockstep.transaction({ lock: 'Stock:1' }, async () => 'well')).toBe('well')
    },
  )

  test('waitMs: 0 ends all the same', async () => {
    const client = bench.open(driver, { max: 2 })
    await client.lockstep.transaction({}, async () => undefined)
    const returnToPool = await takeOut(client, 2)
    const error = await failureOf(client.lockstep.transaction({ lock: 'Order:1', waitMs: 0 }, async () => 'ran'))
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect(error).toMatchObject({ waitedFor: 'connection' })
    returnToPool()
    expect(await client.lockstep.transaction({ lock: 'Order:1', waitMs: 0 }, async () => 'ran')).toBe('ran')
  })

  test.each(['Order:1', 'Stock:1'] as const)(
    'two Locksteps on it, one inside the other: the inner one on %s ends, and close() too',
    async (lock) => {
      const { lockstep, again } = bench.open(driver, { max: 1 })
      const inner = again()
      await lockstep.transaction({ lock: 'Order:1' }, async () => {
        const error = await failureOf(inner.transaction({ lock, waitMs: 100 }, async () => 'ran'))
        expect((error as { code: string }).code).toMatch(/^LOCKSTEP_(NESTED_TRANSACTION|LOCK_TIMEOUT)$/)
        const aborted = inner.transaction({ lock, signal: AbortSignal.timeout(50) }, async () => 'ran')
        expect((await failureOf(aborted)) as Error).toHaveProperty('code')
      })
      await Promise.all([lockstep.close(), inner.close()])
    },
  )

  test('close() comes back however often it was called', async () => {
    const client = bench.open(driver)
    const letGo = await holding(client.lockstep, 'Order:1')
    const first = client.lockstep.close()
    await turn()
    const second = client.lockstep.close()
    await letGo()
    const third = client.lockstep.close()
    await Promise.all([first, second, third])
  })

  test.each(ISOLATIONS)('one connection for everything is served beside two busy processes, %s', async (isolation) => {
    const small = bench.open(driver, { max: 1 })
    const stop = new AbortController()
    const lock = 'Hot:1'
    const busy = [bench.open(driver), bench.open(driver)].flatMap(({ lockstep }) =>
      [1, 2].map(async () => {
        while (!stop.signal.aborted) {
          await lockstep.transaction({ lock, isolation }, (tx) => tx.query('SELECT pg_sleep(0.005)'))
        }
      }),
    )
    const startedAt = performance.now()
    try {
      for (let grants = 0; grants < 20; grants++) {
        await small.lockstep.transaction({ lock, isolation, waitMs: 3000 }, async () => undefined)
      }
      expect(performance.now() - startedAt).toBeLessThan(5000)
    } finally {
      stop.abort()
      await Promise.all(busy)
    }
  })
})

describe.each(DRIVERS)("a wait that is longer than the role's own limits, %s", (driver) => {
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
  test.each(cases)('$setting, $isolation', async ({ setting, isolation }) => {
    // transaction_timeout came with PostgreSQL 17.
    if (!(await isKnown(setting))) return
    const url = new URL(bench.url)
    url.searchParams.set('options', `-c ${setting}=200`)
    const waiter = bench.open(driver, { url: url.href })
    await waiter.lockstep.transaction({}, async () => undefined)
    const letGo = await holding(bench.open(driver).lockstep, 'Order:1')
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

describe('what is left of somebody else', () => {
  test('postgres.js: a query made inside and awaited after the end runs in no other transaction', async () => {
    const { lockstep } = bench.open('postgres.js', { max: 1 })
    const lazy: PromiseLike<unknown>[] = []
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const sql = tx.client as unknown as Sql
      lazy.push(sql`INSERT INTO notes VALUES ('lazy')`, sql.unsafe(`INSERT INTO notes VALUES ('unsafe')`))
    })
    await lockstep.transaction({ lock: 'Stock:1' }, async (tx) => {
      await note(tx, 'own')
      for (const query of lazy) expect(await failureOf(Promise.resolve(query))).toBeInstanceOf(TransactionEndedError)
    })
    expect(await bench.notes()).toEqual(['own'])
  })

  test.each(['open', 'failed'])('pg: a transaction that its user left %s is not continued by ours', async (state) => {
    const { lockstep, pool, query } = bench.open('pg', { max: 1 })
    await lockstep.transaction({}, async () => undefined)
    const forgetful = await (pool as pg.Pool).connect()
    await forgetful.query(`BEGIN; INSERT INTO notes VALUES ('theirs')`)
    if (state === 'failed') await forgetful.query('SELECT 1/0').catch(() => undefined)
    forgetful.release()
    await lockstep.transaction({ lock: 'Order:1' }, (tx) => note(tx, 'ours'))
    expect(await bench.notes()).toEqual(['ours'])
    expect(await query('SELECT 1 AS one')).toEqual([{ one: 1 }])
  })

  test.each(['a transaction', 'a savepoint'])(
    'a job that starts itself anew from inside %s keeps none of its former ones alive',
    async (place) => {
      const { lockstep } = bench.open('pg', { max: 2 })
      setFlagsFromString('--expose-gc')
      const collectGarbage = runInNewContext('gc') as () => void
      const former: WeakRef<Transaction>[] = []
      const alive = await new Promise<number>((resolve, reject) => {
        const tick = (): void => {
          const over = signal()
          const job = async (tx: Transaction): Promise<void> => {
            former.push(new WeakRef(tx))
            if (former.length < 40) return void over.given.then(tick)
            // A WeakRef holds on to its object until the current turn is over.
            await turn()
            collectGarbage()
            resolve(former.filter((each) => each.deref() !== undefined).length)
          }
          lockstep
            .transaction({ lock: 'Job:tick' }, (tx) => (place === 'a savepoint' ? tx.savepoint(job) : job(tx)))
            .then(() => over.give(), reject)
        }
        tick()
      })
      expect(alive).toBeLessThan(10)
    },
  )
})
