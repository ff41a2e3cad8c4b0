import { beforeAll, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  InvalidOptionError,
  lockRows,
  RowsLockedError,
  RowsMissingError,
  type Transaction,
  TransactionEndedError,
} from '../index.ts'
import { on } from '../observe/index.ts'

const bench = await testBench()

const A = '00000000-0000-4000-8000-00000000000a'
const B = 'b0000000-0000-4000-8000-000000000000'

beforeAll(async () => {
  await bench.admin.query(`
    CREATE TABLE accounts (id bigint PRIMARY KEY, balance integer NOT NULL DEFAULT 0);
    INSERT INTO accounts SELECT n, n * 10 FROM generate_series(1, 200) AS n;
    CREATE TABLE wallets (id uuid PRIMARY KEY);
    INSERT INTO wallets VALUES ('${A}'), ('${B}');
    CREATE TABLE labels ("The ""Name" text COLLATE "C" PRIMARY KEY);
    INSERT INTO labels VALUES ('a,b'), ('B'), ('quo"te'), ('back\\slash'), ('{}'), ('NULL');
    CREATE SCHEMA "Led.ger";
    CREATE TYPE side AS ENUM ('long', 'short');
    CREATE DOMAIN symbol AS varchar(8);
    CREATE TABLE "Led.ger".positions (symbol symbol, side side, opened timestamptz, lots integer, PRIMARY KEY (symbol, side, opened));
    INSERT INTO "Led.ger".positions VALUES ('BTC', 'short', '2026-01-01Z', 1), ('BTC', 'long', '2026-01-01Z', 2), ('ADA', 'short', '2026-01-01Z', 3);`)
})

describe.each(DRIVERS)('lockRows, %s', (driver) => {
  const inTransaction = <T>(fn: (tx: Transaction) => Promise<T>): Promise<T> =>
    bench.open(driver).lockstep.transaction({}, fn)

  test('returns each row once, in ascending order of the key, and by id', async () => {
    await inTransaction(async (tx) => {
      const rows = await lockRows<{ id: string; balance: number }>(tx, 'accounts', [10, '9', 9n, 100])
      expect(rows.map(({ id, balance }) => [Number(id), balance])).toEqual([
        [9, 90],
        [10, 100],
        [100, 1000],
      ])
      expect(Object.keys(rows[0] ?? {})).toEqual(['id', 'balance'])
      expect(rows.get('10')?.balance).toBe(100)
      expect(rows.get(9)).toBe(rows[0])
      expect([rows.missing, rows.skipped]).toEqual([[], []])
      expect(await lockRows(tx, 'accounts', [])).toEqual([])
    })
  })

  test('locks many ids, and reports those without a row', async () => {
    await inTransaction(async (tx) => {
      const many = Array.from({ length: 150 }, (_, index) => 150 - index)
      const rows = await lockRows<{ id: string }>(tx, 'accounts', many)
      expect(rows.map(({ id }) => Number(id))).toEqual(many.toReversed())
      expect(rows.get(77)).toEqual(rows[76])
      await expect(lockRows(tx, 'accounts', [...many, 5000])).rejects.toMatchObject({ missing: [5000] })
    })
  })

  test('treats ids as one that the server holds for equal', async () => {
    await inTransaction(async (tx) => {
      const rows = await lockRows(tx, 'wallets', [B.toUpperCase(), A, B])
      expect(rows).toEqual([{ id: A }, { id: B }])
      expect(rows.get(B.toUpperCase())).toEqual({ id: B })
      expect(rows.get(B)).toEqual({ id: B })
    })
  })

  test('accepts text with any character, and quotes names', async () => {
    await inTransaction(async (tx) => {
      const names = ['quo"te', 'a,b', '{}', 'B', 'back\\slash', 'NULL']
      const rows = await lockRows<Record<string, string>>(tx, 'labels', names, { key: 'The "Name' })
      expect(rows.map((row) => row['The "Name'])).toEqual(['B', 'NULL', 'a,b', 'back\\slash', 'quo"te', '{}'])
      expect(rows.get('a,b')).toEqual({ 'The "Name': 'a,b' })
    })
    await expect(inTransaction((tx) => lockRows(tx, 'accounts"; DROP TABLE labels; --', [1]))).rejects.toMatchObject({
      code: '42P01',
    })
  })

  test('accepts a key of several columns: a domain, an enum and a time', async () => {
    await inTransaction(async (tx) => {
      const at = new Date('2026-01-01T00:00:00Z')
      const rows = await lockRows<{ lots: number }>(
        tx,
        { schema: 'Led.ger', table: 'positions' },
        [
          ['BTC', 'short', at],
          ['ADA', 'short', at],
          ['BTC', 'long', at],
        ],
        { key: ['symbol', 'side', 'opened'], columns: ['lots'] },
      )
      expect(rows).toEqual([{ lots: 3 }, { lots: 2 }, { lots: 1 }])
      expect(rows.get(['BTC', 'long', at])).toEqual({ lots: 2 })
    })
  })

  test('locks in ascending order whatever the order of the ids', async () => {
    const { lockstep } = bench.open(driver)
    const held = signal()
    const letGo = signal()
    const holder = lockstep.transaction({}, async (tx) => {
      await lockRows(tx, 'accounts', [5])
      held.give()
      await letGo.given
    })
    await held.given
    const pids: number[] = []
    const waiters = [
      [7, 5, 6],
      [6, 7, 5],
    ].map((ids) =>
      lockstep.transaction({}, async (tx) => {
        pids.push(await pidOf(tx))
        return lockRows(tx, 'accounts', ids)
      }),
    )
    const waiting = `SELECT count(*)::int AS n FROM pg_stat_activity WHERE pid = ANY($1) AND wait_event_type = 'Lock'`
    await expect.poll(async () => (await bench.admin.query<{ n: number }>(waiting, [pids])).rows[0]?.n).toBe(2)
    // Both stand before row 5; had one locked 6 or 7 first, this would find it.
    const free = await inTransaction((tx) => lockRows(tx, 'accounts', [6, 7], { skipLocked: true }))
    expect(free.skipped).toEqual([])
    letGo.give()
    await Promise.all([holder, ...waiters])
  })

  test('shares rows in the weaker modes only', async () => {
    const { lockstep } = bench.open(driver)
    const skipped = async (
      mode: 'update' | 'noKeyUpdate' | 'share' | 'keyShare',
      other: typeof mode,
    ): Promise<number> =>
      lockstep.transaction({}, async (tx) => {
        await lockRows(tx, 'accounts', [20], { mode })
        const second = bench.open(driver).lockstep
        return second.transaction(
          {},
          async (tx2) => (await lockRows(tx2, 'accounts', [20], { mode: other, skipLocked: true })).skipped.length,
        )
      })
    expect(await skipped('share', 'share')).toBe(0)
    expect(await skipped('noKeyUpdate', 'keyShare')).toBe(0)
    expect(await skipped('update', 'keyShare')).toBe(1)
    expect(await skipped('noKeyUpdate', 'share')).toBe(1)
  })

  test('rejects missing rows with their ids, or returns them', async () => {
    const error = await failureOf(inTransaction((tx) => lockRows(tx, 'accounts', [1, 777, 888n])))
    expect(error).toBeInstanceOf(RowsMissingError)
    expect(error).toMatchObject({ table: '"accounts"', missing: [777, 888n] })
    expect(String(error)).toContain('777, 888')
    const rows = await inTransaction((tx) => lockRows(tx, 'accounts', [777, 1], { allowMissing: true }))
    expect([rows.length, rows.missing]).toEqual([1, [777]])
  })

  test('reports a row as missing that is deleted during the wait', async () => {
    const { lockstep } = bench.open(driver)
    await bench.admin.query('INSERT INTO accounts VALUES (900, 0)')
    const deleted = signal()
    const letGo = signal()
    const deleter = lockstep.transaction({}, async (tx) => {
      await tx.query('DELETE FROM accounts WHERE id = 900')
      deleted.give()
      await letGo.given
    })
    await deleted.given
    let pid = 0
    const waiter = lockstep.transaction({}, async (tx) => {
      pid = await pidOf(tx)
      return lockRows(tx, 'accounts', [900, 1], { allowMissing: true })
    })
    const waits = `SELECT wait_event_type FROM pg_stat_activity WHERE pid = $1`
    await expect
      .poll(async () => (await bench.admin.query(waits, [pid])).rows[0] as unknown)
      .toEqual({ wait_event_type: 'Lock' })
    letGo.give()
    await deleter
    expect((await waiter).missing).toEqual([900])
  })

  test('separates skipped from missing rows with skipLocked, and rejects with noWait', async () => {
    await inTransaction(async (tx) => {
      await lockRows(tx, 'accounts', [30, 31])
      const rows = await inTransaction((tx2) =>
        lockRows(tx2, 'accounts', [32, 31, 999, 30], { skipLocked: true, allowMissing: true }),
      )
      expect(rows.map((row) => Number(row['id']))).toEqual([32])
      expect([rows.skipped, rows.missing]).toEqual([[31, 30], [999]])
      expect(rows.get(31)).toBeUndefined()
      const error = await failureOf(inTransaction((tx2) => lockRows(tx2, 'accounts', [30], { noWait: true })))
      expect(error).toBeInstanceOf(RowsLockedError)
      expect(error).toMatchObject({ table: '"accounts"', cause: { code: '55P03' } })
    })
  })

  test('reads what the last holder committed', async () => {
    const { lockstep } = bench.open(driver)
    await bench.admin.query('UPDATE accounts SET balance = 0 WHERE id = 40')
    const add = (): Promise<void> =>
      lockstep.transaction({}, async (tx) => {
        const [row] = await lockRows<{ balance: number }>(tx, 'accounts', [40])
        await tx.query('UPDATE accounts SET balance = $1 WHERE id = 40', [(row?.balance ?? 0) + 1])
      })
    await Promise.all(Array.from({ length: 20 }, add))
    expect((await bench.admin.query('SELECT balance FROM accounts WHERE id = 40')).rows).toEqual([{ balance: 20 }])
  })

  test('rejects invalid input before anything is sent', async () => {
    await inTransaction(async (tx) => {
      const bad: unknown[] = [NaN, 2 ** 60, null, undefined, {}, 'a\0b', [1, 2], new Date('no')]
      for (const id of bad)
        await expect(lockRows(tx, 'accounts', [id as never])).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(lockRows(tx, '', [1])).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(lockRows(tx, 'accounts', 5 as never)).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(lockRows(tx, 'accounts', [1], { columns: [] })).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(lockRows(tx, 'accounts', [1], { key: [] })).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(lockRows(tx, 'accounts', [1], { mode: 'mine' as never })).rejects.toBeInstanceOf(InvalidOptionError)
      const both = { noWait: true, skipLocked: true } as never
      await expect(lockRows(tx, 'accounts', [1], both)).rejects.toBeInstanceOf(InvalidOptionError)
      expect((await tx.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
    })
    // Each statement of a pool or a client is committed by itself: the rows would be free again at once.
    const { pool, query } = bench.open(driver)
    await expect(lockRows(pool as unknown as Transaction, 'accounts', [1])).rejects.toBeInstanceOf(InvalidOptionError)
    await expect(lockRows({ query } as unknown as Transaction, 'accounts', [1])).rejects.toBeInstanceOf(
      InvalidOptionError,
    )
    const ended = await inTransaction((tx) => Promise.resolve(tx))
    await expect(lockRows(ended, 'accounts', [1])).rejects.toBeInstanceOf(TransactionEndedError)
  })

  test('reports two calls out of order, and names both', async () => {
    const told: unknown[] = []
    const stop = on('rows.outOfOrder', (message) => told.push(message))
    try {
      await inTransaction(async (tx) => {
        await lockRows(tx, 'accounts', [9, 50])
        // In order, already locked, and of another table: no reason for a warning.
        await lockRows(tx, 'accounts', [9, 100])
        await lockRows(tx, 'wallets', [A])
        expect(told).toEqual([])
        const rows = await tx.savepoint((inner) => lockRows(inner, 'accounts', [120, 10]))
        expect(rows.map((row) => Object.keys(row))).toEqual([
          ['id', 'balance'],
          ['id', 'balance'],
        ])
      })
      expect(told).toMatchObject([{ table: '"accounts" ("id")', earlier: { id: ['100'] }, later: { id: ['10'] } }])
      expect((told as { later: { stack: string } }[])[0]?.later.stack).toContain('lockRows.pg.test.ts')
      // Another transaction starts with nothing.
      await inTransaction((tx) => lockRows(tx, 'accounts', [1]))
      expect(told.length).toBe(1)
    } finally {
      stop()
    }
  })
})
