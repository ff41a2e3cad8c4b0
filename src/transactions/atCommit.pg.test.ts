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
describe.each(SETTINGS)('at COMMIT, $driver, $route', ({ driver, route }) => {
  const open = (): ReturnType<typeof bench.open> =>
    bench.open(driver, { max: 2, ...(route === 'pooled' ? { url: bench.pooledUrl as string } : {}) })

  test('they run after everything else, in their order', async () => {
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
    'values of every kind arrive as with tx.query, %s',
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

  test('one that fails fails the transaction by its own error, and nothing is written', async () => {
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

  test('a value that cannot be written is an error, and COMMIT does not go without it', async () => {
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

  test('a constraint that is checked at COMMIT is an error of COMMIT', async () => {
    const { lockstep } = open()
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await tx.queryAtCommit(`INSERT INTO numbered (id) VALUES ('twice')`)
      await tx.queryAtCommit(`INSERT INTO numbered (id) VALUES ('twice')`)
    })
    expect(await failureOf(failing)).toMatchObject({ code: '23505' })
    await lockstep.transaction(LOCK, (tx) => later(tx, 'after'))
    expect(await bench.notes()).toEqual(['after'])
  })

  test('a caught failure in the function still means ROLLBACK', async () => {
    const { lockstep } = open()
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await later(tx, 'never')
      await tx.query('SELECT 1/0').catch(() => undefined)
    })
    expect(await failureOf(failing)).toBeDefined()
    expect(await bench.notes()).toEqual([])
  })

  test('a savepoint that is undone takes them along, one that is not hands them on', async () => {
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

  test('a conflict in one of them is tried again, whole', async () => {
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

  test('a session that ends in one of them has written nothing, and it is tried again', async () => {
    const { lockstep } = open()
    let attempts = 0
    await lockstep.transaction(LOCK, async (tx) => {
      attempts++
      await later(tx, `attempt ${attempts}`)
      if (attempts === 1) await tx.queryAtCommit('SELECT pg_terminate_backend(pg_backend_pid())')
    })
    expect(await bench.notes()).toEqual(['attempt 2'])
  })

  test('what ends transactions is refused, and so is a transaction that has ended', async () => {
    const { lockstep } = open()
    const ended = await lockstep.transaction(LOCK, async (tx) => {
      expect(await failureOf(tx.queryAtCommit('COMMIT'))).toBeInstanceOf(TransactionControlError)
      return tx
    })
    expect(await failureOf(ended.queryAtCommit('SELECT 1'))).toBeInstanceOf(TransactionEndedError)
  })

  test('in a transaction of the caller’s own it runs at once', async () => {
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
