import pg from 'pg'
import { DataTypes, Sequelize, type Transaction } from 'sequelize'
import { describe, expect, test } from 'vitest'
import { sequelizeOnPg } from '../../tools/orms/underTest/sequelize.ts'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { DriverUnsupportedError, Lockstep, SavepointOpenError, TransactionControlError } from '../index.ts'
import { findCause } from '../postgres/index.ts'
import { ormConformance } from './orms.conformance.ts'
import { clientOf, sequelize } from './sequelize.ts'

const bench = await testBench()

ormConformance(bench, sequelizeOnPg)

function open(): Sequelize {
  const instance = new Sequelize(bench.url, { dialect: 'postgres', logging: false, pool: { max: 1 } })
  bench.cleanUp(() => instance.close())
  return instance
}

const INSERT = 'INSERT INTO notes VALUES (?)'

/** Runs the function with Sequelize in a transaction. */
async function inside(
  work: (
    transaction: Transaction,
    insert: (id: string, transaction: Transaction) => Promise<unknown>,
  ) => Promise<unknown>,
): Promise<unknown> {
  const instance = open()
  const insert = (id: string, transaction: Transaction): Promise<unknown> =>
    instance.query(INSERT, { replacements: [id], transaction })
  return bench.open('pg').lockstep.transaction({ waitMs: 5000 }, (tx) => work(sequelize(tx, instance), insert))
}

const instanceOf = (transaction: Transaction): Sequelize =>
  (transaction as unknown as { sequelize: Sequelize }).sequelize

/** Without a function, as Sequelize calls it. */
function nested(outer: Transaction): Promise<Transaction> {
  return instanceOf(outer).transaction({ transaction: outer })
}

describe('sequelize()', () => {
  test('refuses to end the transaction', async () => {
    await inside(async (transaction, insert) => {
      for (const call of [transaction.commit(), transaction.rollback()])
        expect(await failureOf(call)).toBeInstanceOf(TransactionControlError)
      // It would never be called.
      expect(() => transaction.afterCommit(() => undefined)).toThrow(TransactionControlError)
      await insert('still open', transaction)
    })
    expect(await bench.notes()).toEqual(['still open'])
  })

  test('nests in transactions that the caller ends', async () => {
    await inside(async (outer, insert) => {
      const kept = await nested(outer)
      await insert('kept', kept)
      const innermost = await nested(kept)
      await insert('innermost', innermost)
      await innermost.rollback()
      await kept.commit()
      const undone = await nested(outer)
      await insert('undone', undone)
      await undone.rollback()
      await insert('after', outer)
    })
    expect(await bench.notes()).toEqual(['after', 'kept'])
  })

  test('refuses a statement of the outer transaction inside of a nested one', async () => {
    await inside(async (outer, insert) => {
      const mixed = instanceOf(outer).transaction({ transaction: outer }, async (inner) => {
        await insert('inner', inner)
        await insert('outer', outer)
      })
      expect(findCause(await failureOf(mixed), (each) => each instanceof SavepointOpenError)).toBeDefined()
      await insert('after', outer)
    })
    expect(await bench.notes()).toEqual(['after'])
  })

  test('gives values as Sequelize does, before it has connected and whatever parsers the pool has', async () => {
    const types = { getTypeParser: () => (text: string) => `parsed by the pool: ${text}` }
    const pool = new pg.Pool({ connectionString: bench.url, types: types as unknown as pg.CustomTypesConfig })
    bench.cleanUp(() => pool.end())
    const lockstep = new Lockstep(pool)
    bench.cleanUp(() => lockstep.close())
    const [fresh, connected] = [open(), open()]
    await connected.authenticate()
    const text = `SELECT 1 AS int, 12.50::numeric AS amount, DATE '2026-03-04' AS day, now() AS now, ARRAY[1, 2] AS list, '{"a": 1}'::jsonb AS document`
    const read = async (instance: Sequelize, transaction: Transaction | null): Promise<object> => {
      const { now, ...rest } = (await instance.query(text, { transaction, plain: true })) as Record<string, unknown>
      return { ...rest, now: now instanceof Date }
    }
    const expected = await read(connected, null)
    expect(expected).toEqual({
      int: 1,
      amount: '12.50',
      day: '2026-03-04',
      list: [1, 2],
      document: { a: 1 },
      now: true,
    })
    await lockstep.transaction({}, async (tx) => {
      expect(await read(fresh, sequelize(tx, fresh))).toEqual(expected)
      expect(await read(connected, sequelize(tx, connected))).toEqual(expected)
    })
  })

  test('covers models with hooks and bulk statements', async () => {
    const instance = open()
    const Note = instance.define(
      'notes',
      { id: { type: DataTypes.TEXT, primaryKey: true } },
      { timestamps: false, freezeTableName: true },
    )
    Note.addHook('afterCreate', async (note, { transaction }) => {
      await Note.bulkCreate([{ id: `${String(note.get('id'))} hook` }], { transaction: transaction ?? null })
    })
    const failed = bench.open('pg').lockstep.transaction({}, async (tx) => {
      const transaction = sequelize(tx, instance)
      await Note.create({ id: 'a' }, { transaction })
      // It opens a nested transaction, and does not end it.
      for (const isNew of [true, false]) {
        const [, created] = await Note.findOrCreate({ where: { id: 'b' }, transaction })
        expect(created).toBe(isNew)
      }
      expect(await Note.count({ transaction })).toBe(4)
      throw new Error('outer')
    })
    await expect(failed).rejects.toThrow('outer')
    expect(await bench.notes()).toEqual([])
  })

  test('refuses a version whose fields it does not know, and a Lockstep on postgres.js', async () => {
    const instance = open()
    await bench.open('postgres.js').lockstep.transaction({}, async (tx) => {
      expect(() => sequelize(tx, instance)).toThrow(DriverUnsupportedError)
    })
    await bench.open('pg').lockstep.transaction({}, async (tx) => {
      expect(() => sequelize(tx, {} as never)).toThrow(DriverUnsupportedError)
    })
    expect(() => clientOf({} as Transaction)).toThrow(DriverUnsupportedError)
  })
})
