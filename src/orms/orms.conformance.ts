import pg from 'pg'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { OpenOrm, OrmPart, OrmUnderTest } from '../../tools/orms/underTest/ormUnderTest.ts'
import { SAMPLE } from '../../tools/orms/underTest/ormUnderTest.ts'
import {
  COUNTER,
  CREATE_ORM_TABLES,
  END_OWN_SESSION,
  raise,
  START_COUNTER,
} from '../../tools/orms/underTest/tables.sql.ts'
import {
  type Client,
  type ClientOptions,
  failureOf,
  firstCall,
  note,
  pidOf,
  retriesDuring,
  signal,
  type Workbench,
} from '../../tools/server/testing/workbench.ts'
import {
  type Isolation,
  JoinRefusedError,
  LockstepError,
  type Stream,
  type Transaction,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../index.ts'
import { findCause } from '../postgres/index.ts'

const ISOLATIONS: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']
const LOCK = 'Account:1'
const STREAM = { topic: 'accounts', key: '1' }
/** At SERIALIZABLE the streams are declared. */
const DECLARED = { streams: [STREAM] }
const EVENT = { ...STREAM, payload: { balance: 1 } }

/** One Lockstep on a pool of its own, and the ORM beside it. */
interface Site extends Client {
  readonly orm: OpenOrm
  /** Runs the function through the ORM, in a transaction with the lock. */
  readonly locked: <T>(
    isolation: Isolation,
    work: (part: OrmPart, tx: Transaction) => Promise<T>,
    options?: { readonly streams: readonly Stream[] },
  ) => Promise<T>
}

/** What every ORM has to keep, on every driver. Each control does the same in the naive way, and fails as expected. */
export function ormConformance(bench: Workbench, tried: OrmUnderTest): void {
  const { name, driver, joins = true } = tried
  const pools = new Set<Client['pool']>()

  async function siteOf(client: Client, url = bench.url): Promise<Site> {
    const orm = await tried.open({ lockstep: client.lockstep, pool: client.pool, url })
    bench.cleanUp(() => orm.close())
    pools.add(client.pool)
    const locked: Site['locked'] = (isolation, work, options) =>
      client.lockstep.transaction({ lock: LOCK, isolation, ...options }, (tx) =>
        orm.inside(tx, (part) => work(part, tx)),
      )
    return { ...client, orm, locked }
  }

  const site = (options: ClientOptions = {}): Promise<Site> => siteOf(bench.open(driver, { max: MAX, ...options }))

  async function counter(): Promise<number> {
    return (await bench.admin.query<{ value: number }>(COUNTER, ['c'])).rows[0]?.value ?? NaN
  }

  async function events(): Promise<number> {
    return (await bench.admin.query('SELECT FROM lockstep.outbox_events')).rowCount ?? NaN
  }

  async function isFree({ lockstep }: Client): Promise<boolean> {
    const id = lockstep.lockId(LOCK)
    const { rows } = await bench.admin.query<{ free: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS free', [id])
    return rows[0]?.free === true
  }

  describe(name, () => {
    beforeAll(async () => {
      const { rows } = await bench.admin.query(`SELECT to_regclass('orm_counters') AS there`)
      if ((rows[0] as { there: unknown }).there === null) await bench.admin.query(CREATE_ORM_TABLES)
    })
    beforeEach(async () => {
      await bench.admin.query(START_COUNTER, ['c'])
      await bench.admin.query('TRUNCATE orm_samples, lockstep.outbox_events')
    })
    // The bench itself sees to it that no lock is held.
    afterEach(async () => {
      const used = [...pools]
      pools.clear()
      await Promise.all(used.map(expectWhole))
      await expect.poll(() => openTransactions(bench)).toBe(0)
    })

    describe.each(ISOLATIONS)('%s', (isolation) => {
      test('holds the lock before its first read', async () => {
        const [holder, caller] = [await site(), await site()]
        const [held, leave] = [signal(), signal()]
        const holding = holder.lockstep.transaction({ lock: LOCK }, async (tx) => {
          await tx.query(`UPDATE orm_counters SET value = 1 WHERE name = 'c'`)
          held.give()
          await leave.given
        })
        await held.given
        const reading = caller.locked(isolation, async (part) => {
          expect(await isFree(caller)).toBe(false)
          return part.readCounter('c')
        })
        await bench.waiters(1)
        leave.give()
        await holding
        expect(await reading).toBe(1)
      })

      test('counts 20 concurrent increments', async () => {
        const sites = [await site(), await site()] as const
        const increment = (each: Site): Promise<void> =>
          each.locked(isolation, async (part) => {
            await part.writeCounter('c', (await part.readCounter('c')) + 1)
          })
        await Promise.all(Array.from({ length: 20 }, (_, place) => increment(sites[place % 2 === 0 ? 0 : 1])))
        expect(await counter()).toBe(20)
      })
    })

    test('control: its own transaction without the lock loses an update', async () => {
      const { orm } = await site()
      const [bothRead, written] = [[signal(), signal()], signal()] as const
      const increment = (mine: 0 | 1): Promise<void> =>
        orm.own('read committed', async (part) => {
          const value = await part.readCounter('c')
          bothRead[mine].give()
          await bothRead[mine === 0 ? 1 : 0].given
          if (mine === 1) await written.given
          await part.writeCounter('c', value + 1)
        })
      await Promise.all([increment(0).then(() => written.give()), increment(1)])
      expect(await counter()).toBe(1)
    })

    test('control: a lock taken in its own SERIALIZABLE transaction comes after the snapshot', async () => {
      const { orm } = await site()
      const [held, leave] = [signal(), signal()]
      const lock = 'SELECT 1 FROM (SELECT pg_advisory_xact_lock(4711)) AS held'
      const first = orm.own('serializable', async (part) => {
        await part.raw(lock)
        const value = await part.readCounter('c')
        held.give()
        await leave.given
        await part.writeCounter('c', value + 1)
      })
      await held.given
      let seen = NaN
      const second = orm.own('serializable', async (part) => {
        await part.raw(lock)
        seen = await part.readCounter('c')
        await part.writeCounter('c', seen + 1)
      })
      const failure = failureOf(second)
      await bench.waiters(1)
      leave.give()
      await first
      await failure
      expect(seen).toBe(0)
      expect(await counter()).toBe(1)
    })

    test('is rolled back as a whole, with what nested and sibling transactions did', async () => {
      const { locked } = await site()
      const failed = locked('serializable', async (part) => {
        await part.insertNote('plain')
        await part.nested(async (inner) => {
          await inner.insertNote('nested')
          await inner.nested((innermost) => innermost.insertNote('nested twice'))
        })
        await Promise.all(['a', 'b', 'c'].map((id) => part.nested((inner) => inner.insertNote(id))))
        throw new Error('outer')
      })
      await expect(failed).rejects.toThrow('outer')
      expect(await bench.notes()).toEqual([])
    })

    test('control: its own transaction inside of ours survives the rollback', async () => {
      const { lockstep, orm } = await site()
      const failed = lockstep.transaction({ lock: LOCK }, async () => {
        await orm.own('read committed', (part) => part.insertNote('own'))
        throw new Error('outer')
      })
      await expect(failed).rejects.toThrow('outer')
      expect(await bench.notes()).toEqual(['own'])
    })

    test('rolls back a nested transaction alone, beside siblings that run at once', async () => {
      const site1 = await site()
      await site1.locked('serializable', async (part, tx) => {
        await part.insertNote('before')
        const siblings = ['a', 'b', 'c', 'd'].map((id, place) =>
          part.nested(async (inner) => {
            await inner.insertNote(id)
            await inner.nested((innermost) => innermost.insertNote(`${id} nested`))
            if (place % 2 === 1) throw new Error(id)
          }),
        )
        const ends = await Promise.allSettled(siblings)
        expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'rejected'])
        // A statement that the server refuses, not only a function that throws.
        expect(await failureOf(part.nested((inner) => inner.insertNote('before')))).toBeInstanceOf(Error)
        expect(await isFree(site1)).toBe(false)
        await part.insertNote('after')
        await note(tx, 'ours')
      })
      expect(await bench.notes()).toEqual(['a', 'a nested', 'after', 'before', 'c', 'c nested', 'ours'])
    })

    test('does not commit after a failure that was caught', async () => {
      const { locked } = await site()
      const failed = locked('serializable', async (part) => {
        await part.insertNote('one')
        await part.insertNote('one').catch(() => undefined)
      })
      expect(await failureOf(failed)).toBeInstanceOf(TransactionRolledBackError)
      expect(await bench.notes()).toEqual([])
    })

    test.each([
      ['40001', 'plainly', (part: OrmPart) => part.raw(raise('40001'))],
      ['40P01', 'plainly', (part: OrmPart) => part.raw(raise('40P01'))],
      ['40001', 'nested', (part: OrmPart) => part.nested((inner) => inner.raw(raise('40001')))],
      [
        '40001',
        'before another failure',
        async (part: OrmPart) => {
          await part.raw(raise('40001')).catch(() => undefined)
          await part.insertNote('too late')
        },
      ],
    ])('is retried after %s inside, %s', async (state, _, fail) => {
      const { locked } = await site()
      let runs = 0
      const { reasons } = await retriesDuring(() =>
        locked('serializable', async (part) => {
          runs++
          await part.insertNote(`run ${runs}`)
          if (runs === 1) await fail(part)
        }),
      )
      expect(reasons).toEqual([state])
      expect(await bench.notes()).toEqual(['run 2'])
    })

    test('is retried after its session was ended between two statements', async () => {
      const { locked } = await site()
      let runs = 0
      const { reasons } = await retriesDuring(() =>
        locked('serializable', async (part, tx) => {
          runs++
          await part.insertNote(`run ${runs}`)
          if (runs > 1) return
          const pid = await pidOf(tx)
          await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
          const there = 'SELECT FROM pg_stat_activity WHERE pid = $1'
          await expect.poll(async () => (await bench.admin.query(there, [pid])).rowCount).toBe(0)
          await part.insertNote('too late')
        }),
      )
      expect(reasons).toHaveLength(1)
      expect(await bench.notes()).toEqual(['run 2'])
    })

    test('is retried when the end of its session is the answer to a statement', async () => {
      const { locked } = await site()
      let runs = 0
      const { reasons } = await retriesDuring(() =>
        locked('serializable', async (part, tx) => {
          runs++
          await part.insertNote(`run ${runs}`)
          if (runs > 1) return
          const pid = await pidOf(tx)
          await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
          // Nothing is received meanwhile: the statement is sent before the last words of the server are read.
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300)
          await part.insertNote('too late')
        }),
      )
      expect(reasons).toHaveLength(1)
      expect(await bench.notes()).toEqual(['run 2'])
    })

    test('is not retried after another failure, which arrives as the ORM throws it', async () => {
      const { locked } = await site()
      let runs = 0
      const failed = locked('serializable', async (part) => {
        runs++
        await part.insertNote('one')
        await part.insertNote('one')
      })
      const error = await failureOf(failed)
      expect(error).not.toBeInstanceOf(LockstepError)
      expect(runs).toBe(1)
    })

    test('gives values as in its own transaction, also after a retry on another connection', async () => {
      const { orm, locked } = await site({ max: 1 })
      await orm.own('read committed', (part) => part.writeSample('own'))
      const expected = await orm.own('read committed', (part) => part.readSample('own'))
      expectSample(expected)
      const pids: number[] = []
      const { reasons } = await retriesDuring(() =>
        locked('serializable', async (part, tx) => {
          pids.push(await pidOf(tx))
          // Twice: the second time, a prepared statement is known already.
          expect(await part.readSample('own')).toEqual(expected)
          expect(await part.readSample('own')).toEqual(expected)
          if (pids.length === 1) await part.raw(END_OWN_SESSION)
          await part.writeSample('inside')
          expect(await part.readSample('inside')).toEqual({ ...expected, id: 'inside' })
        }),
      )
      expect(reasons).toHaveLength(1)
      expect(new Set(pids).size).toBe(2)
      expect(await orm.own('read committed', (part) => part.readSample('inside'))).toEqual({
        ...expected,
        id: 'inside',
      })
    })

    test.each([
      ['never arrived', 2],
      ['was not answered', 1],
    ] as const)('finds out the outcome of a COMMIT that %s', async (what, expectedRuns) => {
      const proxied = await bench.proxied(driver)
      const { locked } = await siteOf(proxied)
      await firstCall(proxied.lockstep)
      const { proxy } = proxied
      let runs = 0
      await locked('serializable', async (part) => {
        runs++
        await part.insertNote('once')
        if (runs > 1) return
        const cut = (chunk: Buffer): 'cut-before' | 'forward' => {
          if (!chunk.includes('COMMIT\0')) return 'forward'
          proxy.onClientData(undefined)
          proxy.onServerData(undefined)
          return 'cut-before'
        }
        if (what === 'never arrived') proxy.onClientData(cut)
        else proxy.onServerData(cut)
      })
      expect(runs).toBe(expectedRuns)
      expect(await bench.notes()).toEqual(['once'])
    })

    test('enqueues events with the transaction', async () => {
      const { locked } = await site()
      const work = async (part: OrmPart, tx: Transaction): Promise<void> => {
        await part.insertNote('with event')
        await tx.enqueue(EVENT)
      }
      const failed = locked(
        'serializable',
        async (part, tx) => {
          await work(part, tx)
          throw new Error('outer')
        },
        DECLARED,
      )
      await expect(failed).rejects.toThrow('outer')
      expect([await events(), await bench.notes()]).toEqual([0, []])
      await locked('serializable', work, DECLARED)
      expect([await events(), await bench.notes()]).toEqual([1, ['with event']])
    })

    test('refuses after the end, and sends nothing', async () => {
      const { locked } = await site()
      let kept: OrmPart | undefined
      let inner: OrmPart | undefined
      await locked('serializable', async (part) => {
        kept = part
        await part.nested(async (nested) => {
          inner = nested
        })
      })
      const isEnded = (each: unknown): boolean => each instanceof TransactionEndedError
      for (const part of [kept, inner] as OrmPart[]) {
        const late = [
          failureOf(attempt(() => part.insertNote('late'))),
          failureOf(attempt(() => part.nested((nested) => nested.insertNote('late')))),
        ]
        for (const error of await Promise.all(late)) expect(findCause(error, isEnded)).toBeDefined()
      }
      expect(await bench.notes()).toEqual([])
    })

    describe.runIf(joins)('a transaction that it opened by itself', () => {
      test('is joined with a lock, and takes events with it', async () => {
        const site1 = await site()
        const { lockstep, orm } = site1
        await orm.own('read committed', async (part) => {
          const tx = await lockstep.join(await part.client(), { lock: LOCK })
          expect(await isFree(site1)).toBe(false)
          await part.writeCounter('c', (await part.readCounter('c')) + 1)
          await note(tx, 'joined')
          await lockstep.outbox.enqueue(await part.client(), EVENT)
        })
        expect([await counter(), await events(), await bench.notes()]).toEqual([1, 1, ['joined']])
      })

      test('is rolled back with what was joined to it', async () => {
        const { lockstep, orm } = await site()
        const failed = orm.own('read committed', async (part) => {
          await note(await lockstep.join(await part.client(), { lock: LOCK }), 'joined')
          await lockstep.outbox.enqueue(await part.client(), EVENT)
          throw new Error('outer')
        })
        await expect(failed).rejects.toThrow('outer')
        expect([await events(), await bench.notes()]).toEqual([0, []])
      })

      test.each(ISOLATIONS.slice(1))('is refused a lock at %s, and stays usable', async (isolation) => {
        const { lockstep, orm } = await site()
        await orm.own(isolation, async (part) => {
          const error = await failureOf(lockstep.join(await part.client(), { lock: LOCK }))
          expect(error).toBeInstanceOf(JoinRefusedError)
          await part.insertNote('after')
        })
        expect(await bench.notes()).toEqual(['after'])
      })
    })
  })
}

const MAX = 4

/** Where it throws at once, it is rejected. */
async function attempt<T>(work: () => Promise<T>): Promise<T> {
  return work()
}

/** The values as they were written, in whatever type the ORM gives them. */
function expectSample(row: object | undefined): void {
  const { big, amount, numbers, texts, document, at, day } = (row ?? {}) as Record<keyof typeof SAMPLE, unknown>
  expect(BigInt(big as string)).toBe(SAMPLE.big)
  expect(String(amount)).toBe(SAMPLE.amount)
  expect({ numbers, texts, document }).toEqual({
    numbers: SAMPLE.numbers,
    texts: SAMPLE.texts,
    document: SAMPLE.document,
  })
  expect(new Date(at as Date).getTime()).toBe(SAMPLE.at.getTime())
  const text = day instanceof Date ? localDate(day) : String(day)
  expect(text).toBe(SAMPLE.day)
}

/** pg gives a date as midnight in the zone of the process; Prisma as midnight in UTC. */
function localDate(day: Date): string {
  if (day.toISOString().includes('T00:00:00')) return day.toISOString().slice(0, 10)
  return `${day.getFullYear()}-${pad(day.getMonth() + 1)}-${pad(day.getDate())}`
}

const pad = (value: number): string => String(value).padStart(2, '0')

/** Every connection of the pool is free, and no caller waits for one. */
async function expectWhole(pool: Client['pool']): Promise<void> {
  if (pool instanceof pg.Pool) {
    await expect.poll(() => [pool.totalCount - pool.idleCount, pool.waitingCount]).toEqual([0, 0])
    return
  }
  const { max } = pool.options
  // To the one for whom it opens a connection again, postgres.js reports what the server said when it ended the session before.
  const each = (): Promise<unknown> => pool.unsafe('SELECT pg_sleep(0.05)').catch(expectLastWords)
  await Promise.all(Array.from({ length: max }, each))
  const reserved = await Promise.all(Array.from({ length: max }, () => pool.reserve()))
  for (const connection of reserved) connection.release()
}

function expectLastWords(error: unknown): void {
  if ((error as { code?: unknown }).code !== '57P01') throw error
}

async function openTransactions({ admin }: Workbench): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM pg_stat_activity
      WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
  )
  return rows[0]?.n ?? NaN
}
