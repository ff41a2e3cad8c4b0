import type { DataSource, EntityManager } from 'typeorm'
import { DataSource as Source, EntitySchema } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { typeormOnPg } from '../../tools/orms/underTest/typeorm.ts'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { DriverUnsupportedError, SavepointOpenError, TransactionControlError } from '../index.ts'
import { findCause } from '../postgres/index.ts'
import { ormConformance } from './orms.conformance.ts'
import { clientOf, typeorm } from './typeorm.ts'

const bench = await testBench()

ormConformance(bench, typeormOnPg)

const Note = new EntitySchema<{ id: string }>({
  name: 'Note',
  tableName: 'notes',
  columns: { id: { type: 'text', primary: true } },
})

async function openSource(): Promise<DataSource> {
  const source = new Source({ type: 'postgres', url: bench.url, entities: [Note], extra: { max: 1 } })
  await source.initialize()
  bench.cleanUp(() => source.destroy())
  return source
}

/** Runs the function with TypeORM in a transaction. */
async function inside(work: (manager: EntityManager) => Promise<unknown>): Promise<unknown> {
  const source = await openSource()
  return bench.open('pg').lockstep.transaction({}, (tx) => work(typeorm(tx, source)))
}

const isControl = (error: unknown): boolean => error instanceof TransactionControlError

describe('typeorm()', () => {
  test('covers repositories, query builders and raw statements', async () => {
    const failed = inside(async (manager) => {
      await manager.getRepository(Note).save([{ id: 'a' }, { id: 'b' }])
      await manager.createQueryBuilder().insert().into(Note).values({ id: 'c' }).execute()
      await manager.query('INSERT INTO notes VALUES ($1)', ['d'])
      await manager.getRepository(Note).remove({ id: 'a' })
      expect(await manager.count(Note)).toBe(3)
      expect(await bench.notes()).toEqual([])
      throw new Error('outer')
    })
    await expect(failed).rejects.toThrow('outer')
    expect(await bench.notes()).toEqual([])
  })

  test('refuses to end the transaction', async () => {
    await inside(async (manager) => {
      const runner = manager.queryRunner
      for (const end of [runner?.commitTransaction(), runner?.rollbackTransaction(), manager.query('COMMIT')])
        expect(findCause(await failureOf(end as Promise<unknown>), isControl)).toBeDefined()
    })
  })

  test('nests with its isolation level, and refuses another', async () => {
    await inside(async (manager) => {
      await manager.transaction('READ COMMITTED', (inner) => inner.insert(Note, { id: 'kept' }))
      const other = manager.transaction('SERIALIZABLE', (inner) => inner.insert(Note, { id: 'refused' }))
      expect(await failureOf(other)).toBeInstanceOf(TransactionControlError)
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('refuses a statement of the outer manager inside of a nested transaction', async () => {
    await inside(async (manager) => {
      const mixed = manager.transaction(async () => manager.insert(Note, { id: 'outer' }))
      expect(findCause(await failureOf(mixed), (each) => each instanceof SavepointOpenError)).toBeDefined()
    })
    expect(await bench.notes()).toEqual([])
  })

  test('takes no connection of the data source', async () => {
    const source = await openSource()
    const { lockstep } = bench.open('pg')
    // It has one, and that is taken.
    await source.transaction(async () => {
      await lockstep.transaction({}, (tx) => typeorm(tx, source).save(Note, { id: 'one' }))
    })
    expect(await bench.notes()).toEqual(['one'])
  })

  test('refuses a version whose fields it does not know, and a Lockstep on postgres.js', async () => {
    const source = await openSource()
    const stranger = { createQueryRunner: () => ({ manager: {} }) } as unknown as DataSource
    await bench.open('pg').lockstep.transaction({}, async (tx) => {
      expect(() => typeorm(tx, stranger)).toThrow(DriverUnsupportedError)
    })
    await bench.open('postgres.js').lockstep.transaction({}, async (tx) => {
      expect(() => typeorm(tx, source)).toThrow(DriverUnsupportedError)
    })
    expect(() => clientOf(source.manager)).toThrow(DriverUnsupportedError)
  })
})
