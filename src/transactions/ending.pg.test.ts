import pg from 'pg'
import postgres from 'postgres'
import { beforeAll, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  Lockstep,
  LockstepClosedError,
  type Transaction,
  TransactionControlError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../index.ts'
import { hold } from '../testing/index.ts'

const bench = await testBench()

beforeAll(async () => {
  await bench.admin.query(`
    CREATE TABLE parents (id int PRIMARY KEY);
    CREATE TABLE children (
      id int CONSTRAINT unique_child UNIQUE DEFERRABLE INITIALLY DEFERRED,
      parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`)
})

describe.each(DRIVERS)('a tx that has ended, %s', (driver) => {
  test.each(['returned', 'thrown'])('refuses everything once its function has %s', async (how) => {
    const { lockstep } = bench.open(driver)
    let kept: Transaction | undefined
    const ended = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      kept = tx
      if (how === 'thrown') throw new Error('thrown')
    })
    await ended.catch(() => undefined)
    const tx = kept as Transaction
    await expect(tx.query('SELECT 1')).rejects.toBeInstanceOf(TransactionEndedError)
    await expect(tx.savepoint(async () => 1)).rejects.toBeInstanceOf(TransactionEndedError)
    expect(() => tx.client).toThrow(TransactionEndedError)
    expect(await failureOf(tx.query('SELECT 1'))).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ENDED' })
  })

  test('refuses everything of an ended savepoint while its transaction continues', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      for (const fails of [false, true]) {
        let kept: Transaction | undefined
        const ended = tx.savepoint(async (inner) => {
          kept = inner
          if (fails) throw new Error('thrown')
        })
        await ended.catch(() => undefined)
        const inner = kept as Transaction
        await expect(inner.query('SELECT 1')).rejects.toBeInstanceOf(TransactionEndedError)
        await expect(inner.savepoint(async () => 1)).rejects.toBeInstanceOf(TransactionEndedError)
        expect(() => inner.client).toThrow(TransactionEndedError)
      }
      await note(tx, 'goes on')
    })
    expect(await bench.notes()).toEqual(['goes on'])
  })

  test('includes a query that was not awaited, without disturbing the next user', async () => {
    const { lockstep, query } = bench.open(driver, { max: 1 })
    const floating = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => ({ pending: note(tx, 'floating') }))
    await floating.pending
    await lockstep.transaction({ lock: 'Order:1' }, (tx) => note(tx, 'next'))
    expect(await query('SELECT count(*)::int AS n FROM notes')).toEqual([{ n: 2 }])
  })

  test('fails its own transaction by a query that was not awaited', async () => {
    const { lockstep, query } = bench.open(driver, { max: 1 })
    const spoiled = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'lost')
      void tx.query('SELECT 1/0').catch(() => undefined)
    })
    expect(await failureOf(spoiled)).toMatchObject({
      code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK',
      cause: { code: '22012' },
    })
    expect(await query('SELECT 1 AS one')).toEqual([{ one: 1 }])
    expect(await bench.notes()).toEqual([])
  })
})

describe('tx.client', () => {
  test('works inside, and refuses after the end, pg', async () => {
    const pool = new pg.Pool({ connectionString: bench.url, max: 1 })
    const lockstep = new Lockstep(pool)
    const client = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const { rows } = await tx.client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
      expect(rows[0]?.pid).toBe(await pidOf(tx))
      await tx.client.query('INSERT INTO notes VALUES ($1)', ['by the client'])
      expect(tx.client).toBeInstanceOf(pg.Client)
      return { kept: tx.client }
    })
    expect(() => client.kept.query('SELECT 1')).toThrow(TransactionEndedError)
    expect(await bench.notes()).toEqual(['by the client'])
    await pool.end()
  })

  test('works inside as a template and by unsafe(), and refuses after the end, postgres.js', async () => {
    const sql = postgres(bench.url, { max: 1, onnotice: () => {} })
    const lockstep = new Lockstep(sql)
    const { kept, floating } = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const { client } = tx
      const rows = await client<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`
      expect(rows[0]?.pid).toBe(await pidOf(tx))
      const row = { id: 'by the template' }
      await client`INSERT INTO notes ${client(row)}`
      await client.unsafe('INSERT INTO notes VALUES ($1)', ['by unsafe()'])
      const part = client`WHERE id LIKE ${'by %'}`
      expect(await client`SELECT count(*)::int AS n FROM notes ${part}`).toEqual([{ n: 2 }])
      // postgres.js sends a query only when its promise is awaited.
      return {
        kept: client,
        floating: [client`INSERT INTO notes VALUES ('late')`, client.unsafe(`INSERT INTO notes VALUES ('later')`)],
      }
    })
    expect(() => kept`SELECT 1`).toThrow(TransactionEndedError)
    expect(() => kept.unsafe('SELECT 1')).toThrow(TransactionEndedError)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      for (const query of floating) await expect(query).rejects.toBeInstanceOf(TransactionEndedError)
      await tx.query('SELECT 1')
    })
    expect(await bench.notes()).toEqual(['by the template', 'by unsafe()'])
    await sql.end()
  })

  test.each(DRIVERS)('does not release the connection, %s', async (driver) => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = tx.client as unknown as { release(): void; end(): void }
      expect(() => client.release()).toThrow(TransactionControlError)
      expect(() => client.end()).toThrow(TransactionControlError)
      await note(tx, 'still open')
    })
    expect(await bench.notes()).toEqual(['still open'])
  })
})

describe.each(DRIVERS)('transaction control statements, %s', (driver) => {
  const control = [
    'COMMIT',
    'commit',
    ' Commit Work',
    'COMMIT AND CHAIN',
    'ROLLBACK',
    'rollback work',
    'ROLLBACK AND CHAIN',
    'ABORT',
    'END',
    'BEGIN',
    'START TRANSACTION',
    "PREPARE TRANSACTION 'x'",
    "ROLLBACK PREPARED 'x'",
    '/* c */ commit',
    '/* outer /* inner */ still a comment */ COMMIT',
    '-- x\n COMMIT',
    '-- x\r COMMIT',
    '--\n--\n/**/\n\tcommit;',
    ';COMMIT',
    ' ; ; rollback',
  ]
  test('are rejected before they are sent, and the transaction continues', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'one')
      for (const text of control) {
        const error = await failureOf(tx.query(text))
        expect(error, JSON.stringify(text)).toBeInstanceOf(TransactionControlError)
      }
      expect(await bench.notes()).toEqual([])
      expect(await bench.locksHeld()).toBe(1)
    })
    expect(await bench.notes()).toEqual(['one'])
  })

  test('are accepted for savepoints of the caller', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      for (const back of [
        'ROLLBACK TO SAVEPOINT mine',
        'rollback work to mine',
        '/* c */ ROLLBACK TRANSACTION TO mine',
      ]) {
        await tx.query('SAVEPOINT mine')
        await note(tx, 'undone')
        await tx.query(back)
      }
      await tx.query('RELEASE SAVEPOINT mine')
      await tx.query('/* COMMIT */ SELECT 1 -- ROLLBACK')
      await tx.query(`SELECT 'COMMIT' AS commit`)
      await note(tx, 'kept')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('are not sent several in one query()', async () => {
    const { lockstep } = bench.open(driver)
    for (const text of ['SELECT 1; SELECT 2', 'SELECT 1; COMMIT']) {
      const error = await failureOf(lockstep.transaction({ lock: 'Order:1' }, (tx) => tx.query(text)))
      expect(error, text).toMatchObject({ code: '42601' })
    }
  })
})

describe.each(DRIVERS)('how a transaction ends, %s', (driver) => {
  test('rejects with TransactionRolledBackError after a caught error', async () => {
    const { lockstep, query } = bench.open(driver, { max: 1 })
    const swallowing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'lost')
      await tx.query('SELECT 1/0').catch(() => undefined)
      return 'as if nothing were wrong'
    })
    const error = await failureOf(swallowing)
    expect(error).toBeInstanceOf(TransactionRolledBackError)
    expect(error).toMatchObject({ keys: ['Order:1'], cause: { code: '22012' } })
    expect(await bench.notes()).toEqual([])
    expect(await query('SELECT 1 AS one')).toEqual([{ one: 1 }])
  })

  test('names the error that aborted it as the cause, not one inside a savepoint', async () => {
    const { lockstep } = bench.open(driver)
    const swallowing = lockstep.transaction({}, async (tx) => {
      await tx.savepoint((inner) => inner.query('SELECT 1/0')).catch(() => undefined)
      const swallowed = tx.savepoint(async (inner) => void (await failureOf(inner.query('SELECT 1/0'))))
      await swallowed.catch(() => undefined)
      await tx.query('SELECT * FROM no_such_table').catch(() => undefined)
    })
    expect(await failureOf(swallowing)).toMatchObject({ cause: { code: '42P01' } })
  })

  test('does not name an error as the cause that a savepoint of the caller rolled back', async () => {
    const { lockstep } = bench.open(driver)
    const swallowing = lockstep.transaction({}, async (tx) => {
      await tx.query('SAVEPOINT mine')
      await tx.query('SELECT no_such_column').catch(() => undefined)
      await tx.query('ROLLBACK TO mine')
      await note(tx, 'lost')
      await tx.query('SELECT * FROM no_such_table').catch(() => undefined)
    })
    expect(await failureOf(swallowing)).toMatchObject({ cause: { code: '42P01' } })
  })

  test('fails only the savepoint in which an error was caught', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({}, async (tx) => {
      const swallowing = tx.savepoint(async (inner) => {
        await note(inner, 'lost')
        await inner.query('SELECT 1/0').catch(() => undefined)
      })
      const error = await failureOf(swallowing)
      expect(error).toBeInstanceOf(TransactionRolledBackError)
      expect(error).toMatchObject({ cause: { code: '22012' } })
      await note(tx, 'kept')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test.each([
    ['unique', '23505', 'INSERT INTO children (id) VALUES (1), (1)'],
    ['foreign key', '23503', 'INSERT INTO children (parent) VALUES (4711)'],
  ])("rejects with the driver's error for a deferred %s at COMMIT, %s", async (_, code, text) => {
    const { lockstep, query } = bench.open(driver, { max: 1 })
    let runs = 0
    const violating = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      runs++
      await note(tx, 'lost')
      await tx.query(text)
    })
    const error = await failureOf(violating)
    expect(error).toMatchObject({ code })
    expect((error as Error).name).not.toMatch(/^Transaction/)
    expect(runs).toBe(1)
    expect(await bench.notes()).toEqual([])
    expect(await query('SELECT count(*)::int AS n FROM children')).toEqual([{ n: 0 }])
    expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'healthy')).toBe('healthy')
  })

  test.each([['x'], [undefined], [null], [0], [{ code: 40001 }]])('passes a thrown %o on', async (thrown) => {
    const { lockstep } = bench.open(driver, { max: 1 })
    let runs = 0
    const throwing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      runs++
      await note(tx, 'lost')
      // oxlint-disable-next-line typescript/only-throw-error -- callers do
      throw thrown
    })
    expect(await failureOf(throwing)).toBe(thrown)
    expect(runs).toBe(1)
    expect(await bench.notes()).toEqual([])
  })

  test('accepts a function that is not async', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const plain = (() => 7) as unknown as () => Promise<number>
    const throwing = (): Promise<never> => {
      throw new TypeError('at once')
    }
    expect(await lockstep.transaction({ lock: 'Order:1' }, plain)).toBe(7)
    await expect(lockstep.transaction({ lock: 'Order:1' }, throwing)).rejects.toThrow('at once')
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      expect(await tx.savepoint(plain)).toBe(7)
      await expect(tx.savepoint(throwing)).rejects.toThrow('at once')
      expect(await tx.transaction({ lock: 'Order:1' }, plain)).toBe(7)
      await expect(tx.transaction({}, throwing)).rejects.toThrow('at once')
      await note(tx, 'good')
    })
    expect(await bench.notes()).toEqual(['good'])
  })
})

describe.each(DRIVERS)('close(), %s', (driver) => {
  test('rejects queued calls, waits for running ones, and refuses later ones', async () => {
    const { lockstep } = bench.open(driver)
    const running = signal()
    const finish = signal()
    const done: string[] = []
    const holder = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      running.give()
      await finish.given
      // A part of a transaction that runs is no new call.
      await tx.transaction({ lock: 'Order:1' }, (inner) => note(inner, 'finished'))
      await note(tx, 'too')
      done.push('holder')
    })
    await running.given
    const queued = [1, 2, 3].map(() => failureOf(lockstep.transaction({ lock: 'Order:1' }, async () => 1)))
    const closed = lockstep.close().then(() => done.push('closed'))
    for (const error of await Promise.all(queued)) {
      expect(error).toBeInstanceOf(LockstepClosedError)
      expect(error).toMatchObject({ code: 'LOCKSTEP_CLOSED', keys: ['Order:1'] })
    }
    await expect(lockstep.transaction({}, async () => 1)).rejects.toBeInstanceOf(LockstepClosedError)
    expect(done).toEqual([])
    finish.give()
    await Promise.all([holder, closed])
    expect(done).toEqual(['holder', 'closed'])
    expect(await bench.notes()).toEqual(['finished', 'too'])
    await expect(lockstep.transaction({ lock: 'Order:1' }, async () => 1)).rejects.toBeInstanceOf(LockstepClosedError)
    await expect(lockstep.join({}, {})).rejects.toBeInstanceOf(LockstepClosedError)
    await expect(lockstep.migrate()).rejects.toBeInstanceOf(LockstepClosedError)
    await expect(lockstep.doctor()).rejects.toBeInstanceOf(LockstepClosedError)
    await lockstep.close()
  })

  test.each(['read committed', 'serializable'] as const)(
    'rejects callers that wait at the server, %s',
    async (isolation) => {
      const holder = bench.open(driver)
      const waiter = bench.open(driver)
      // From the second transaction on, the connection is known to be direct.
      await waiter.lockstep.transaction({}, async () => undefined)
      const { release } = await hold(holder.lockstep, 'Order:1')
      const waiting = failureOf(
        waiter.lockstep.transaction({ lock: 'Order:1', isolation, waitMs: false }, async () => 1),
      )
      await bench.waiters(1)
      await waiter.lockstep.close()
      expect(await waiting).toBeInstanceOf(LockstepClosedError)
      await bench.waiters(0)
      await release()
      expect(await waiter.query('SELECT 1 AS one')).toEqual([{ one: 1 }])
    },
  )

  test('runs at the end of an `await using` block', async () => {
    const client = bench.open(driver)
    let kept: Lockstep | undefined
    {
      await using lockstep = client.again()
      kept = lockstep
      await lockstep.transaction({ lock: 'Order:1' }, (tx) => note(tx, 'used'))
    }
    await expect(kept.transaction({}, async () => 1)).rejects.toBeInstanceOf(LockstepClosedError)
    expect(await client.query('SELECT count(*)::int AS n FROM notes')).toEqual([{ n: 1 }])
  })

  test('returns to two callers at once', async () => {
    const { lockstep } = bench.open(driver)
    const { release } = await hold(lockstep, 'Order:1')
    const closing = [lockstep.close(), lockstep.close()]
    await Promise.all([release(), ...closing])
  })
})
