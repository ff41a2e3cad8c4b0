import postgres from 'postgres'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { DRIVERS, pidOf, retriesDuring, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { lockRows, Lockstep, type Transaction } from '../index.ts'
import { on } from '../observe/index.ts'

/** Orders of events that could break what lockRows promises. Each test makes its order happen; none hopes for it. */

const bench = await testBench()

beforeAll(() =>
  bench.admin.query(`
    CREATE TABLE accounts (id bigint PRIMARY KEY, balance integer NOT NULL DEFAULT 0);
    CREATE DOMAIN code AS varchar(8) CHECK (VALUE <> '');
    CREATE TYPE side AS ENUM ('long', 'short');
    CREATE TABLE codes (id code PRIMARY KEY);
    CREATE TABLE sides (id side PRIMARY KEY);
    CREATE TABLE blobs (id bytea PRIMARY KEY);
    CREATE TABLE moments (id timestamptz PRIMARY KEY);
    CREATE TABLE prices (id numeric PRIMARY KEY);
    INSERT INTO codes VALUES ('BTC'), ('ADA');
    INSERT INTO sides VALUES ('short'), ('long');
    INSERT INTO blobs VALUES ('\\x00ff'), ('\\x01');
    INSERT INTO moments VALUES ('2026-01-02Z'), ('2026-01-01Z');
    INSERT INTO prices VALUES (10), (9.5)`),
)
beforeEach(() => bench.admin.query('TRUNCATE accounts; INSERT INTO accounts SELECT n FROM generate_series(6, 20) AS n'))

/** The transaction with something to be done after its first statement. */
function afterFirst(tx: Transaction, then: () => Promise<void>): Transaction {
  let statements = 0
  const query: Transaction['query'] = async <Row>(text: string, values?: readonly unknown[]) => {
    const result = await tx.query<Row>(text, values)
    if (++statements === 1) await then()
    return result
  }
  return new Proxy(tx, { get: (target, name) => (name === 'query' ? query : Reflect.get(target, name, target)) })
}

describe.each(DRIVERS)('two calls of lockRows, %s', (driver) => {
  // Once: where the statement for few ids does not find all, a second, locking one is sent. A row that came into being in between
  // is locked after those that come behind it: the circle that lockRows promises not to make (40P01).
  test('does not wait out of order for a row that appears meanwhile', async () => {
    const [lockstep, second] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const { reasons: conflicts } = await retriesDuring(async () => {
      let other: Promise<unknown> | undefined
      let pid = 0
      await lockstep.transaction({}, async (tx) => {
        const hooked = afterFirst(tx, async () => {
          // 7 is locked by now, 5 was not there.
          await bench.admin.query('INSERT INTO accounts VALUES (5) ON CONFLICT DO NOTHING')
          other ??= second.transaction({}, async (tx2) => {
            pid = await pidOf(tx2)
            return lockRows(tx2, 'accounts', [5, 7])
          })
          await bench.blocked(() => pid)
        })
        await lockRows(other === undefined ? hooked : tx, 'accounts', [5, 7], { allowMissing: true })
      })
      await other
    })
    expect(conflicts).toEqual([])
  })

  test('does not wait out of order with many ids either', async () => {
    const [lockstep, second] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const many = Array.from({ length: 120 }, (_, index) => 120 - index)
    const { reasons: conflicts } = await retriesDuring(async () => {
      let other: Promise<unknown> | undefined
      let pid = 0
      await lockstep.transaction({}, async (tx) => {
        const hooked = afterFirst(tx, async () => {
          await bench.admin.query('INSERT INTO accounts VALUES (5) ON CONFLICT DO NOTHING')
          other ??= second.transaction({}, async (tx2) => {
            pid = await pidOf(tx2)
            return lockRows(tx2, 'accounts', many, { allowMissing: true })
          })
          await bench.blocked(() => pid)
        })
        const rows = await lockRows(hooked, 'accounts', many, { allowMissing: true })
        expect(rows.missing).toContain(5)
      })
      await other
    })
    expect(conflicts).toEqual([])
  })

  // What exists is asked in a second statement, with a younger snapshot.
  test('reports a row as skipped that appears between its two statements', async () => {
    const { lockstep } = bench.open(driver)
    const rows = await lockstep.transaction({}, (tx) => {
      const hooked = afterFirst(tx, async () => void (await bench.admin.query('INSERT INTO accounts VALUES (5)')))
      return lockRows(hooked, 'accounts', [5, 7], { skipLocked: true, allowMissing: true })
    })
    expect([rows.missing, rows.skipped]).toEqual([[], [5]])
  })

  test('never deadlocks twenty transactions that name the same rows in every order', async () => {
    const clients = [bench.open(driver).lockstep, bench.open(driver).lockstep] as const
    const { reasons: conflicts } = await retriesDuring(() =>
      Promise.all(
        Array.from({ length: 20 }, (_, number) =>
          clients[number % 2 === 0 ? 0 : 1].transaction({}, async (tx) => {
            const ids = Array.from({ length: 10 }, (_id, index) => 6 + ((index * 7 + number * 3) % 10))
            await lockRows(tx, 'accounts', number % 3 === 0 ? ids.toReversed() : ids)
            await tx.query('UPDATE accounts SET balance = balance + 1 WHERE id BETWEEN 6 AND 15')
          }),
        ),
      ),
    )
    expect(conflicts).toEqual([])
    const { rows } = await bench.admin.query('SELECT DISTINCT balance FROM accounts WHERE id BETWEEN 6 AND 15')
    expect(rows).toEqual([{ balance: 20 }])
  })

  test('retries when the backend is terminated while it waits for a row', async () => {
    const { lockstep } = bench.open(driver)
    const letGo = signal()
    let pid = 0
    let runs = 0
    let waiter: Promise<unknown> | undefined
    await lockstep.transaction({}, async (tx) => {
      await lockRows(tx, 'accounts', [7])
      waiter = bench.open(driver).lockstep.transaction({}, async (tx2) => {
        runs++
        pid = await pidOf(tx2)
        await lockRows(tx2, 'accounts', [8, 7, 6])
        letGo.give()
      })
      await bench.blocked(() => pid)
      await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
      await bench.gone(pid)
      await expect.poll(() => runs).toBe(2)
      await bench.blocked(() => pid)
    })
    await letGo.given
    await waiter
  })

  // Once: a savepoint that was rolled back has given its row locks back, but the guard remembers them.
  test('forgets rows in the order guard that a savepoint released', async () => {
    const told: unknown[] = []
    const stop = on('rows.outOfOrder', (message) => told.push(message))
    try {
      await bench.open(driver).lockstep.transaction({}, async (tx) => {
        const undone = tx.savepoint(async (inner) => {
          await lockRows(inner, 'accounts', [20])
          throw new Error('undone')
        })
        await expect(undone).rejects.toThrow('undone')
        await lockRows(tx, 'accounts', [6])
      })
      expect(told).toEqual([])
    } finally {
      stop()
    }
  })

  test('locks in the same order with few and many ids, for every type of key', async () => {
    const at = [new Date('2026-01-01T00:00:00Z'), new Date('2026-01-02T00:00:00Z')]
    const keys: [string, (string | number | Date | Uint8Array)[]][] = [
      ['codes', ['ADA', 'BTC']],
      ['sides', ['long', 'short']],
      ['blobs', [Buffer.from([0, 255]), new Uint8Array([1])]],
      ['moments', at],
      ['prices', [9.5, '10']],
    ]
    await bench.open(driver).lockstep.transaction({}, async (tx) => {
      for (const [table, ids] of keys) {
        const short = await lockRows(tx, table, ids.toReversed())
        const long = await lockRows(tx, table, ids.toReversed(), { skipLocked: true })
        expect([...short], table).toEqual([...long])
        for (const [index, id] of ids.entries()) expect(short.get(id), table).toBe(short[index])
      }
      const twice = await lockRows(tx, 'prices', ['10', '10.0', '1e1'])
      expect(twice).toHaveLength(1)
      expect(['10', '10.0', '1e1'].map((id) => twice.get(id))).toEqual([twice[0], twice[0], twice[0]])
    })
  })
})

describe('own columns of lockRows', () => {
  async function renamed(work: (tx: Transaction) => Promise<unknown>): Promise<unknown> {
    const sql = postgres(bench.url, { max: 2, onnotice: () => {}, transform: postgres.pascal })
    const lockstep = new Lockstep(sql)
    try {
      return await lockstep.transaction({}, work)
    } finally {
      await lockstep.close()
      await sql.end({ timeout: 0.1 })
    }
  }

  test('are found where postgres.js renames columns', async () => {
    await renamed(async (tx) => {
      const rows = await lockRows(tx, 'accounts', [7, 6])
      expect(rows.map((row) => row)).toEqual([
        { Id: '6', Balance: 0 },
        { Id: '7', Balance: 0 },
      ])
      const skipping = await lockRows(tx, 'accounts', [6, 999], { skipLocked: true, allowMissing: true })
      expect([skipping.length, skipping.missing]).toEqual([1, [999]])
    })
  })

  // Once: the guard still looks for its two columns by their exact names.
  test('are found where postgres.js renames columns and the guard is on', async () => {
    const told: unknown[] = []
    const stop = on('rows.outOfOrder', (message) => told.push(message))
    try {
      await renamed(async (tx) => {
        expect([...(await lockRows(tx, 'accounts', [9]))]).toEqual([{ Id: '9', Balance: 0 }])
        expect([...(await lockRows(tx, 'accounts', [8]))]).toEqual([{ Id: '8', Balance: 0 }])
      })
    } finally {
      stop()
    }
    expect(told).toMatchObject([{ earlier: { id: ['9'] }, later: { id: ['8'] } }])
  })

  // Once: ours is the first column of the statement, but not the first key of the row: JavaScript puts numbers before names.
  test.each(DRIVERS)('are found beside a column whose name is a number, %s', async (driver) => {
    await bench.admin.query(`CREATE TABLE IF NOT EXISTS odd (id bigint PRIMARY KEY, "1" text)`)
    await bench.admin.query(`INSERT INTO odd VALUES (1, 'one'), (2, 'two') ON CONFLICT DO NOTHING`)
    const rows = await bench.open(driver).lockstep.transaction({}, (tx) => lockRows(tx, 'odd', [2, 1]))
    expect(rows.map((row) => row)).toEqual([
      { id: '1', '1': 'one' },
      { id: '2', '1': 'two' },
    ])
    expect(rows.get(2)).toBe(rows[1])
  })
})
