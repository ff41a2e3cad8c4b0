import { writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import type { ReservedSql } from 'postgres'
import { describe, expect, test } from 'vitest'
import { loadOrm, ormsAreInstalled } from '../../tools/orms/load.ts'
import { failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  SavepointOpenError,
  TransactionControlError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../index.ts'

const bench = await testBench()

type Answer = { rows: unknown[]; command: string }

/** Calls `client.query()` in a way that takes a callback. */
function called(ask: (answer: (error: Error | null, result: unknown) => void) => unknown): Promise<Answer> {
  return new Promise((resolve, reject) => {
    ask((error, result) => {
      if (error) reject(error)
      else resolve(result as Answer)
    })
  })
}

async function onPg(work: (client: pg.PoolClient, pool: pg.Pool) => Promise<unknown>): Promise<void> {
  const { lockstep, pool } = bench.open('pg', { max: 1 })
  await lockstep.transaction({ lock: 'Order:1' }, (tx) => work(tx.client as unknown as pg.PoolClient, pool as pg.Pool))
}

async function onSql(work: (sql: ReservedSql) => Promise<unknown>): Promise<void> {
  const { lockstep } = bench.open('postgres.js', { max: 1 })
  await lockstep.transaction({ lock: 'Order:1' }, (tx) => work(tx.client as unknown as ReservedSql))
}

describe('a virtual client of pg', () => {
  const one = 'SELECT 1 AS one'
  const two = 'SELECT $1::int AS one'
  type Client = { query(...given: unknown[]): Promise<Answer> }
  const ways: [string, (client: Client) => Promise<Answer>][] = [
    ['(text)', (client) => client.query(one)],
    ['(text, values)', (client) => client.query(two, [1])],
    ['(text, callback)', (client) => called((answer) => client.query(one, answer))],
    ['(text, values, callback)', (client) => called((answer) => client.query(two, [1], answer))],
    ['(config)', (client) => client.query({ text: one })],
    ['(config, values)', (client) => client.query({ text: two }, [1])],
    ['(config with values)', (client) => client.query({ text: two, values: [1], name: 'two' })],
    ['(config, callback)', (client) => called((answer) => client.query({ text: two, values: [1] }, answer))],
    ['(config, values, callback)', (client) => called((answer) => client.query({ text: two }, [1], answer))],
    ['(config with callback)', (client) => called((callback) => client.query({ text: one, callback }))],
  ]
  test.each(ways)('accepts query%s', async (_, ask) => {
    await onPg(async (client) => {
      const answer = await ask(client)
      expect(answer).toMatchObject({ rows: [{ one: 1 }], command: 'SELECT' })
      // It waits for its turn in every form.
      const other = await (client as unknown as pg.Pool).connect()
      await other.query('BEGIN')
      const waiting = ask(client)
      await other.query('ROLLBACK')
      expect((await waiting).rows).toEqual([{ one: 1 }])
      other.release()
    })
  })

  const controls: [string, (client: Client, text: string) => Promise<Answer>][] = [
    ['(text)', (client, text) => client.query(text)],
    ['(text, callback)', (client, text) => called((answer) => client.query(text, answer))],
    ['(config)', (client, text) => client.query({ text })],
    ['(config, values)', (client, text) => client.query({ text, values: [] }, [])],
    ['(config, callback)', (client, text) => called((answer) => client.query({ text }, answer))],
  ]
  test.each(controls)('runs BEGIN and COMMIT by query%s', async (_, send) => {
    await onPg(async (client) => {
      const sender = client as unknown as Client
      expect(await send(sender, 'BEGIN')).toMatchObject({ command: 'BEGIN', rows: [] })
      await client.query(`INSERT INTO notes VALUES ('kept')`)
      expect(await send(sender, 'COMMIT')).toMatchObject({ command: 'COMMIT' })
      expect(await failureOf(send(sender, 'COMMIT'))).toBeInstanceOf(TransactionControlError)
      expect(await failureOf(send(sender, 'SELECT 1; ROLLBACK'))).toBeInstanceOf(TransactionControlError)
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('leaves no properties and listeners of a query builder on the real client', async () => {
    const { lockstep, pool } = bench.open('pg', { max: 1 })
    const seen: pg.Client[] = []
    ;(pool as pg.Pool).on('release', (_error, client) => seen.push(client))
    for (let round = 0; round < 3; round++) {
      await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const client = tx.client as unknown as pg.PoolClient & { mark?: string }
        expect(client.mark).toBeUndefined()
        client.mark = 'set'
        expect(client.mark).toBe('set')
        expect('mark' in client).toBe(true)
        const other = (await (client as unknown as pg.Pool).connect()) as typeof client
        expect(other.mark).toBeUndefined()
        delete client.mark
        expect(client.mark).toBeUndefined()
        const hear = (): void => undefined
        expect(client.on('notice', hear).once('notice', hear).off('notice', hear)).toBe(client)
        other.on('error', hear)
        other.release()
        client.on('error', hear).removeAllListeners('notice')
      })
    }
    const [real] = seen
    expect(new Set(seen).size).toBe(1)
    // The pool's own.
    expect([real?.listenerCount('error'), real?.listenerCount('notice')]).toEqual([1, 0])
    expect(real).not.toHaveProperty('mark')
  })

  test('passes a client and its release to the callback of connect()', async () => {
    await onPg(async (client) => {
      await new Promise<void>((resolve, reject) => {
        ;(client as unknown as pg.Pool).connect((error, other, release) => {
          if (error !== undefined || other === undefined) return reject(error ?? new Error('no client'))
          other.query('BEGIN', () => {
            other.query(`INSERT INTO notes VALUES ('undone')`, () => {
              release()
              resolve()
            })
          })
        })
      })
      await client.query(`INSERT INTO notes VALUES ('kept')`)
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  // The errors of Bun do not name the callers that wait.
  const BUN = 'bun' in process.versions
  test.skipIf(BUN)('rejects with the stack of the caller', async () => {
    await onPg(async (client) => {
      await client.query('BEGIN')
      let stack: string | undefined = ''
      try {
        await client.query('SELECT 1/0')
      } catch (error) {
        stack = (error as Error).stack
      }
      expect(stack).toContain('virtualClients.pg.test')
      await client.query('ROLLBACK')
    })
  })
})

describe.skipIf(!ormsAreInstalled())('query objects on a virtual client of pg', () => {
  type Cursor = pg.Submittable & { read(rows: number): Promise<unknown[]>; close(): Promise<void> }
  type CursorClass = new (text: string, values?: unknown[]) => Cursor
  type StreamClass = new (text: string, values?: unknown[]) => pg.Submittable & AsyncIterable<unknown>
  const cursor = (text: string): Cursor => new (loadOrm<CursorClass>('pg-cursor'))(text)
  const stream = (text: string): InstanceType<StreamClass> => new (loadOrm<StreamClass>('pg-query-stream'))(text)

  async function all(rows: AsyncIterable<unknown>): Promise<unknown[]> {
    const list: unknown[] = []
    for await (const row of rows) list.push(row)
    return list
  }

  test('support pg-cursor and pg-query-stream, also queued ones', async () => {
    await onPg(async (client) => {
      const three = 'SELECT n FROM generate_series(1, 3) AS n'
      const reading = client.query(cursor(three))
      expect(await reading.read(2)).toEqual([{ n: 1 }, { n: 2 }])
      await reading.close()
      expect(await all(client.query(stream(three)))).toHaveLength(3)
      const other = await (client as unknown as pg.Pool).connect()
      await other.query('BEGIN')
      const waiting = [client.query(cursor(three)).read(5), all(client.query(stream(three)))]
      await other.query('COMMIT')
      other.release()
      for (const rows of await Promise.all(waiting)) expect(rows).toHaveLength(3)
    })
  })

  test('report their errors, and reject transaction control', async () => {
    const { lockstep } = bench.open('pg')
    const spoiled = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = tx.client as unknown as pg.PoolClient
      for (const text of ['BEGIN', 'COMMIT', 'SELECT 1; COMMIT']) {
        expect(await failureOf(client.query(cursor(text)).read(1))).toBeInstanceOf(TransactionControlError)
        expect(await failureOf(all(client.query(stream(text))))).toBeInstanceOf(TransactionControlError)
      }
      await note(tx, 'lost')
      await client
        .query(cursor('SELECT 1/0'))
        .read(1)
        .catch(() => undefined)
    })
    const error = await failureOf(spoiled)
    expect(error).toBeInstanceOf(TransactionRolledBackError)
    expect(error).toMatchObject({ cause: { code: '22012' } })
    expect(await bench.notes()).toEqual([])
  })
})

describe('a virtual client of postgres.js', () => {
  test('nests begin() and savepoint(), which roll back only themselves', async () => {
    await onSql(async (sql) => {
      await sql`INSERT INTO notes VALUES ('first')`
      const value = await sql.begin(async (outer) => {
        await outer`INSERT INTO notes VALUES ('outer')`
        const failing = outer.savepoint(async (inner) => {
          await inner`INSERT INTO notes VALUES ('undone')`
          throw new Error('inner')
        })
        await expect(failing).rejects.toThrow('inner')
        await outer.savepoint('named', (inner) => inner`INSERT INTO notes VALUES ('named')`)
        return 42
      })
      expect(value).toBe(42)
      expect(await sql.begin((part) => [part`SELECT 1 AS n`, part`SELECT 2 AS n`])).toEqual([[{ n: 1 }], [{ n: 2 }]])
      const swallowing = sql.begin(async (part) => {
        await part`INSERT INTO notes VALUES ('undone')`
        await part`SELECT 1/0`.catch(() => undefined)
      })
      expect(await failureOf(swallowing)).toBeInstanceOf(TransactionRolledBackError)
      await sql`INSERT INTO notes VALUES ('last')`
    })
    expect(await bench.notes()).toEqual(['first', 'last', 'named', 'outer'])
  })

  test('accepts begin() with the same isolation level or READ ONLY, and nothing else', async () => {
    await onSql(async (sql) => {
      const refused = ['isolation level serializable', 'read only deferrable', 'something else']
      for (const modes of refused) {
        expect(await failureOf(sql.begin(modes, async () => undefined))).toBeInstanceOf(TransactionControlError)
      }
      const writing = sql.begin(
        'isolation level read committed read only',
        (part) => part`INSERT INTO notes VALUES ('x')`,
      )
      expect(await failureOf(writing)).toMatchObject({ code: '25006' })
      await sql`INSERT INTO notes VALUES ('kept')`
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('rejects the outer client inside begin(), and prepare() always', async () => {
    await onSql(async (sql) => {
      await sql.begin(async (part) => {
        expect(await failureOf(sql`SELECT 1`.execute())).toBeInstanceOf(SavepointOpenError)
        expect(() => part.prepare('x')).toThrow(TransactionControlError)
        await part`INSERT INTO notes VALUES ('kept')`
      })
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('returns a separate client by reserve()', async () => {
    await onSql(async (sql) => {
      const other = await sql.reserve()
      await other`BEGIN`
      const rows = await other`INSERT INTO notes VALUES ('undone') RETURNING id`
      expect(rows.count).toBe(1)
      expect(await other`ROLLBACK`).toMatchObject({ command: 'ROLLBACK' })
      other.release()
      expect(() => other`SELECT 1`).toThrow(TransactionEndedError)
      expect(() => sql.end()).toThrow(TransactionControlError)
    })
    expect(await bench.notes()).toEqual([])
  })

  test('checks statements of file(), too', async () => {
    const folder = tmpdir()
    const [good, bad] = [
      join(folder, `lockstep-${process.pid}-good.sql`),
      join(folder, `lockstep-${process.pid}-bad.sql`),
    ]
    await writeFile(good, `INSERT INTO notes VALUES ('from a file')`)
    await writeFile(bad, `INSERT INTO notes VALUES ('hidden'); COMMIT`)
    await onSql(async (sql) => {
      await sql.file(good)
      expect(await failureOf(sql.file(bad).execute())).toBeInstanceOf(TransactionControlError)
      expect(await failureOf(sql.file(`${good}.missing`).execute())).toMatchObject({ code: 'ENOENT' })
    })
    expect(await bench.notes()).toEqual(['from a file'])
  })

  test('sends notify() with the transaction', async () => {
    const { lockstep, pool } = bench.open('postgres.js', { max: 2 })
    const heard: string[] = []
    const arrived = signal()
    await (pool as ReservedSql).listen('virtual', (payload) => {
      heard.push(payload)
      arrived.give()
    })
    const rolledBack = lockstep.transaction({}, async (tx) => {
      await (tx.client as unknown as ReservedSql).notify('virtual', 'never')
      throw new Error('rolled back')
    })
    await expect(rolledBack).rejects.toThrow('rolled back')
    await lockstep.transaction({}, async (tx) => {
      await (tx.client as unknown as ReservedSql).notify('virtual', 'committed')
    })
    await arrived.given
    expect(heard).toEqual(['committed'])
  })

  test('supports cursors, forEach, describe, values, fragments and helpers', async () => {
    await onSql(async (sql) => {
      const batches: number[] = []
      for await (const rows of sql`SELECT n FROM generate_series(1, 5) AS n`.cursor(2)) batches.push(rows.length)
      expect(batches).toEqual([2, 2, 1])
      const seen: unknown[] = []
      await sql`SELECT 1 AS n`.forEach((row) => void seen.push(row))
      expect(seen).toEqual([{ n: 1 }])
      expect(await sql`SELECT 1 AS n, 2 AS m`.values()).toEqual([[1, 2]])
      expect((await sql`SELECT 1 AS n`.describe()).string).toBe('SELECT 1 AS n')
      await sql`INSERT INTO notes ${sql([{ id: 'a' }, { id: 'b' }])}`
      const part = sql`WHERE id IN ${sql(['a', 'b'])}`
      expect(await sql`SELECT id FROM ${sql('notes')} ${part} ORDER BY id`).toEqual([{ id: 'a' }, { id: 'b' }])
      expect(await sql`SELECT ${sql.json({ x: 1 })} AS j, ${sql.array([1, 2])}::int[] AS a`).toEqual([
        { j: { x: 1 }, a: [1, 2] },
      ])
    })
  })
})
