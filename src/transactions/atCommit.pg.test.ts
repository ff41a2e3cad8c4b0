import { beforeAll, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import { key, TransactionControlError, TransactionEndedError, type Transaction } from '../index.ts'

/** Statements that go together with COMMIT: with it or not at all. */

const bench = await testBench()
const ROUTES = bench.pooledUrl === undefined ? (['direct'] as const) : (['direct', 'pooled'] as const)
const LOCK = { lock: key`Order:1` }

beforeAll(() => bench.admin.query('CREATE TABLE numbered (n serial, id text UNIQUE DEFERRABLE INITIALLY DEFERRED)'))

const later = (tx: Transaction, id: string): Promise<void> => tx.queryAtCommit('INSERT INTO notes VALUES ($1)', [id])

const SETTINGS = DRIVERS.flatMap((driver) => ROUTES.map((route) => ({ driver, route })))
describe.each(SETTINGS)('statements at COMMIT, $driver, $route', ({ driver, route }) => {
  const open = (): ReturnType<typeof bench.open> =>
    bench.open(driver, { max: 2, ...(route === 'pooled' ? { url: bench.pooledUrl as string } : {}) })

  test('run after everything else, in order', async () => {
    const { lockstep } = open()
    await bench.admin.query('TRUNCATE numbered RESTART IDENTITY')
    const seen = await lockstep.transaction(LOCK, async (tx) => {
      await tx.queryAtCommit('INSERT INTO numbered (id) VALUES ($1)', ['second'])
      await tx.queryAtCommit(`INSERT INTO numbered (id) VALUES ('third')`)
      await tx.query(`INSERT INTO numbered (id) VALUES ('first')`)
      return (await tx.query('SELECT id FROM numbered')).rows.length
    })
    expect(seen).toBe(1)
    const { rows } = await bench.admin.query<{ id: string }>('SELECT id FROM numbered ORDER BY n')
    expect(rows.map(({ id }) => id)).toEqual(['first', 'second', 'third'])
  })

  test.each(['read committed', 'serializable'] as const)(
    'pass values of every kind as tx.query does, %s',
    async (isolation) => {
      const { lockstep } = open()
      const statement = `INSERT INTO notes SELECT jsonb_build_array($1::int, $2::text, $3::timestamptz, $4::bytea, $5::text[], $6::jsonb, $7::bool)::text`
      const values = [1, "it's \\", new Date(0), Buffer.from([0, 255]), ['a"b', 'c,d', ''], { a: [1] }, null]
      await lockstep.transaction({ ...LOCK, isolation }, async (tx) => {
        await tx.query(statement, values)
        await tx.query('UPDATE notes SET id = $1 || id', ['x'])
        await tx.queryAtCommit(statement, values)
      })
      const [plain, prefixed] = await bench.notes()
      expect(prefixed).toBe(`x${plain}`)
    },
  )

  test('fail the transaction with their own error', async () => {
    const { lockstep } = open()
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await note(tx, 'before')
      await later(tx, 'written')
      await tx.queryAtCommit('SELECT 1 / $1::int', [0])
      await later(tx, 'never')
    })
    expect(await failureOf(failing)).toMatchObject({ code: '22012' })
    expect(await bench.notes()).toEqual([])
    // The connection is as good as new.
    await lockstep.transaction(LOCK, (tx) => later(tx, 'after'))
    expect(await bench.notes()).toEqual(['after'])
    expect(await bench.locksHeld()).toBe(0)
  })

  test('reject a value that cannot be written, without COMMIT', async () => {
    const { lockstep } = open()
    const circular: Record<string, unknown> = {}
    circular['self'] = circular
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await note(tx, 'before')
      await tx.queryAtCommit('INSERT INTO notes VALUES ($1::jsonb::text)', [circular])
    })
    expect(await failureOf(failing)).toBeInstanceOf(TypeError)
    expect(await bench.notes()).toEqual([])
    await lockstep.transaction(LOCK, (tx) => later(tx, 'after'))
    expect(await bench.notes()).toEqual(['after'])
  })

  test('reject with a constraint that is checked at COMMIT', async () => {
    const { lockstep } = open()
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await tx.queryAtCommit(`INSERT INTO numbered (id) VALUES ('twice')`)
      await tx.queryAtCommit(`INSERT INTO numbered (id) VALUES ('twice')`)
    })
    expect(await failureOf(failing)).toMatchObject({ code: '23505' })
    await lockstep.transaction(LOCK, (tx) => later(tx, 'after'))
    expect(await bench.notes()).toEqual(['after'])
  })

  test('roll back after a caught failure in the function', async () => {
    const { lockstep } = open()
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await later(tx, 'never')
      await tx.query('SELECT 1/0').catch(() => undefined)
    })
    expect(await failureOf(failing)).toBeDefined()
    expect(await bench.notes()).toEqual([])
  })

  test('follow their savepoint', async () => {
    const { lockstep } = open()
    await lockstep.transaction(LOCK, async (tx) => {
      const undone = tx.savepoint(async (part) => {
        await later(part, 'undone')
        await part.savepoint((inner) => later(inner, 'undone with it'))
        throw new Error('undo')
      })
      await undone.catch(() => undefined)
      await tx.savepoint((part) => part.savepoint((inner) => later(inner, 'kept')))
      await tx.transaction({}, (nested) => later(nested, 'nested'))
    })
    expect(await bench.notes()).toEqual(['kept', 'nested'])
  })

  test('retry the whole transaction after a conflict in one of them', async () => {
    const { lockstep } = open()
    let attempts = 0
    await lockstep.transaction(LOCK, async (tx) => {
      attempts++
      await later(tx, `attempt ${attempts}`)
      if (attempts < 3) {
        await tx.queryAtCommit(`DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$`)
      }
    })
    expect(await bench.notes()).toEqual(['attempt 3'])
  })

  test('retry when the session ends in one of them', async () => {
    const { lockstep } = open()
    let attempts = 0
    await lockstep.transaction(LOCK, async (tx) => {
      attempts++
      await later(tx, `attempt ${attempts}`)
      if (attempts === 1) await tx.queryAtCommit('SELECT pg_terminate_backend(pg_backend_pid())')
    })
    expect(await bench.notes()).toEqual(['attempt 2'])
  })

  test('reject transaction control, and a transaction that has ended', async () => {
    const { lockstep } = open()
    const ended = await lockstep.transaction(LOCK, async (tx) => {
      expect(await failureOf(tx.queryAtCommit('COMMIT'))).toBeInstanceOf(TransactionControlError)
      return tx
    })
    expect(await failureOf(ended.queryAtCommit('SELECT 1'))).toBeInstanceOf(TransactionEndedError)
  })

  test('run at once in a transaction of the caller', async () => {
    const { lockstep, begin } = open()
    const count = await begin('', async (client) => {
      const tx = await lockstep.join(client)
      await later(tx, 'joined')
      return (await tx.query('SELECT FROM notes')).rowCount
    })
    expect(count).toBe(1)
    expect(await bench.notes()).toEqual(['joined'])
  })
})

describe.each(DRIVERS)('statements at COMMIT, %s', (driver) => {
  test('copy the list of values, which the caller can use again', async () => {
    const { lockstep } = bench.open(driver)
    const values: string[] = []
    await lockstep.transaction(LOCK, async (tx) => {
      for (const id of ['a', 'b']) {
        values[0] = id
        await tx.queryAtCommit(`INSERT INTO notes VALUES ($1) ON CONFLICT DO NOTHING`, values)
      }
    })
    expect(await bench.notes()).toEqual(['a', 'b'])
  })

  // A statement before COMMIT fails with 25P02 then, which must not count as the reason.
  test.each([true, false])(
    'retry a conflict that the function has caught, with a statement at COMMIT: %s',
    async (atCommit) => {
      const { lockstep } = bench.open(driver)
      let attempts = 0
      await lockstep.transaction(LOCK, async (tx) => {
        attempts++
        await (atCommit ? later(tx, `attempt ${attempts}`) : note(tx, `attempt ${attempts}`))
        if (attempts > 1) return
        await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$`).catch(() => undefined)
      })
      expect(await bench.notes()).toEqual(['attempt 2'])
    },
  )

  test('report a failure that the function has caught as the cause', async () => {
    const { lockstep } = bench.open(driver)
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await tx.enqueue({ topic: 'trades', key: 'a', payload: 1 })
      await tx.query('SELECT 1/0').catch(() => undefined)
    })
    expect(await failureOf(failing)).toMatchObject({
      code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK',
      cause: { code: '22012' },
    })
  })

  // The statement waits for a row of another session. The message must not be watched as if it were COMMIT alone, which is never slow.
  test('wait at COMMIT for longer than silenceMs', async () => {
    const { lockstep } = bench.open(driver, { silenceMs: 400 })
    const other = await bench.session()
    await other.query(`BEGIN; INSERT INTO notes VALUES ('held')`)
    const settled: unknown[] = []
    const running = lockstep.transaction({ ...LOCK, retry: false }, async (tx) => {
      await note(tx, 'mine')
      await tx.queryAtCommit(`INSERT INTO notes VALUES ($1) ON CONFLICT DO NOTHING`, ['held'])
    })
    const ended = running.then(
      () => settled.push('committed'),
      (error: unknown) => settled.push((error as Error).name),
    )
    const waits = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                      AND query_start < clock_timestamp() - interval '1500 ms'`
    await Promise.race([ended, expect.poll(async () => (await bench.admin.query(waits)).rowCount).toBe(1)])
    await other.query('COMMIT')
    await ended
    await expect.poll(() => bench.notes()).toEqual(['held', 'mine'])
    expect(settled).toEqual(['committed'])
  })

  // READ UNCOMMITTED is READ COMMITTED in PostgreSQL: join() takes it, and so does outbox_append(). tx.enqueue() refuses it as a
  // snapshot that is too old, with the advice to declare streams, which join() cannot.
  test('accept an event in a joined transaction that is READ UNCOMMITTED', async () => {
    const { lockstep, begin } = bench.open(driver)
    await begin('ISOLATION LEVEL READ UNCOMMITTED', async (client) => {
      const tx = await lockstep.join(client)
      await tx.enqueue({ topic: 'trades', key: 'a', payload: 1 })
    })
  })
})

// pg hands CopyInResponse and CopyData to the query that is being answered, and ours has no method for them: the TypeError is thrown in
// the socket's own event and ends the process. tx.query() of the same gives an error that can be caught, or the tag.
describe.each(['COPY notes TO STDOUT', 'COPY notes FROM STDIN'])('at COMMIT, %s', (copy) => {
  test('rejects, and does not end the process', async () => {
    const { lockstep, query } = bench.open('pg', { silenceMs: 300 })
    await query(`INSERT INTO notes VALUES ('a')`)
    const uncaught: unknown[] = []
    const listeners = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    process.on('uncaughtException', (error) => void uncaught.push(error))
    try {
      const running = lockstep.transaction(LOCK, (tx) => tx.queryAtCommit(copy))
      await running.catch(() => undefined)
    } finally {
      process.removeAllListeners('uncaughtException')
      for (const listener of listeners) process.on('uncaughtException', listener)
    }
    expect(uncaught).toEqual([])
  })
})
