import {
  type EntityManager,
  EntitySchema,
  IsolationLevel,
  type Knex,
  MikroORM,
  TransactionPropagation,
} from '@mikro-orm/postgresql'
import { describe, expect, test } from 'vitest'
import { mikroOrmOnPg } from '../../tools/orms/underTest/mikro-orm.ts'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { DriverUnsupportedError, SavepointOpenError, TransactionControlError } from '../index.ts'
import { findCause } from '../postgres/index.ts'
import { clientOf, mikroOrm } from './mikro-orm.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, mikroOrmOnPg)

interface NoteRow {
  id: string
}

const Note = new EntitySchema<NoteRow>({
  name: 'Note',
  tableName: 'notes',
  properties: { id: { type: 'text', primary: true } },
})

async function openOrm(): Promise<MikroORM> {
  const orm = await MikroORM.init({ clientUrl: bench.url, entities: [Note], pool: { min: 0, max: 1 } })
  bench.cleanUp(() => orm.close())
  return orm
}

/** Runs the function with MikroORM in a transaction. */
async function inside(work: (em: EntityManager) => Promise<unknown>): Promise<unknown> {
  const orm = await openOrm()
  return bench.open('pg').lockstep.transaction({}, (tx) => work(mikroOrm(tx, orm)))
}

describe('mikroOrm()', () => {
  test('writes what was flushed, and nothing else', async () => {
    await inside(async (em) => {
      em.create(Note, { id: 'flushed' })
      await em.flush()
      em.create(Note, { id: 'kept in memory' })
    })
    expect(await bench.notes()).toEqual(['flushed'])
  })

  test('flushes at the end of a nested transaction, and gives its entities to the outer one', async () => {
    await inside(async (em) => {
      await em.transactional(async (inner) => {
        inner.create(Note, { id: 'inner' })
      })
      expect(em.getUnitOfWork().getIdentityMap().keys()).toHaveLength(1)
      await em.transactional(async (inner) => {
        await inner.transactional(async (innermost) => {
          innermost.create(Note, { id: 'innermost' })
        })
      })
    })
    expect(await bench.notes()).toEqual(['inner', 'innermost'])
  })

  test('covers query builders and raw statements', async () => {
    const failed = inside(async (em) => {
      await em.createQueryBuilder(Note).insert({ id: 'a' }).execute()
      await em.execute('INSERT INTO notes VALUES (?)', ['b'])
      const trx = em.getTransactionContext() as Knex.Transaction
      await trx('notes').insert({ id: 'c' })
      expect(await em.count(Note)).toBe(3)
      expect(await bench.notes()).toEqual([])
      throw new Error('outer')
    })
    await expect(failed).rejects.toThrow('outer')
    expect(await bench.notes()).toEqual([])
  })

  test('refuses to begin and to end a transaction', async () => {
    await inside(async (em) => {
      for (const call of [em.begin(), em.commit(), em.rollback()])
        expect(await failureOf(call)).toBeInstanceOf(TransactionControlError)
    })
  })

  test('nests with its isolation level, and refuses another', async () => {
    await inside(async (em) => {
      const nested = (isolationLevel: IsolationLevel): Promise<unknown> =>
        em.transactional((inner) => inner.insert(Note, { id: isolationLevel }), { isolationLevel })
      await nested(IsolationLevel.READ_COMMITTED)
      expect(await failureOf(nested(IsolationLevel.SERIALIZABLE))).toBeInstanceOf(TransactionControlError)
    })
    expect(await bench.notes()).toEqual(['read committed'])
  })

  test('refuses a statement of the outer entity manager inside of a nested transaction', async () => {
    await inside(async (em) => {
      const mixed = em.transactional(async () => em.insert(Note, { id: 'outer' }))
      expect(findCause(await failureOf(mixed), (each) => each instanceof SavepointOpenError)).toBeDefined()
    })
    expect(await bench.notes()).toEqual([])
  })

  test('leaves the transaction where MikroORM says so', async () => {
    const failed = inside(async (em) => {
      await em.transactional((own) => own.insert(Note, { id: 'own' }), {
        propagation: TransactionPropagation.REQUIRES_NEW,
      })
      await em.insert(Note, { id: 'undone' })
      await em.fork().insert(Note, { id: 'fork' })
      await em.fork({ keepTransactionContext: true }).insert(Note, { id: 'undone, too' })
      throw new Error('outer')
    })
    await expect(failed).rejects.toThrow('outer')
    expect(await bench.notes()).toEqual(['fork', 'own'])
  })

  test('refuses a version whose fields it does not know, and a Lockstep on postgres.js', async () => {
    const orm = await openOrm()
    await bench.open('postgres.js').lockstep.transaction({}, async (tx) => {
      expect(() => mikroOrm(tx, orm)).toThrow(DriverUnsupportedError)
    })
    expect(await failureOf(clientOf(orm.em.fork()))).toBeInstanceOf(DriverUnsupportedError)
    const stranger = orm.em.fork()
    const getConnection = (): object => ({ getConnectionOptions: () => ({}), getKnex: () => orm.em.getKnex() })
    Object.assign(stranger, { getConnection, fork: () => stranger })
    await bench.open('pg').lockstep.transaction({}, async (tx) => {
      expect(() => mikroOrm(tx, { em: stranger })).toThrow(DriverUnsupportedError)
    })
  })
})
