import knexFactory, { type Knex } from 'knex'
import { describe, expect, test } from 'vitest'
import { knexOnPg } from '../../tools/orms/underTest/knex.ts'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { DriverUnsupportedError, TransactionControlError } from '../index.ts'
import { clientOf, knex } from './knex.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, knexOnPg)

/** Without a pool: of the instance, only the settings are used. */
const instance = knexFactory({ client: 'pg' })

/** Runs the function with Knex in a transaction. */
function inside(work: (trx: Knex.Transaction) => Promise<unknown>): Promise<unknown> {
  return bench.open('pg').lockstep.transaction({}, async (tx) => work(await knex(tx, instance)))
}

describe('knex()', () => {
  test('refuses to end the transaction', async () => {
    let kept: Knex.Transaction | undefined
    await inside(async (trx) => {
      kept = trx
      for (const end of [() => trx.commit(), () => trx.rollback()])
        expect(await failureOf(Promise.resolve(end()))).toBeInstanceOf(TransactionControlError)
      expect(trx.isCompleted()).toBe(false)
      await trx('notes').insert({ id: 'still open' })
    })
    expect(kept?.isCompleted()).toBe(true)
    expect(await bench.notes()).toEqual(['still open'])
  })

  test('nests in transactions that the caller ends', async () => {
    await inside(async (trx) => {
      const kept = await trx.transaction()
      await kept('notes').insert({ id: 'kept' })
      await kept.commit()
      const undone = await trx.transaction()
      await undone('notes').insert({ id: 'undone' })
      await undone.rollback()
      expect(undone.isCompleted()).toBe(true)
      // Asked for without a reason, a rollback is no failure.
      const answer: unknown = await trx.transaction((part) => {
        void part('notes')
          .insert({ id: 'undone, too' })
          .then(() => part.rollback())
      })
      expect(answer).toBeUndefined()
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('inserts in batches as a nested transaction', async () => {
    await inside(async (trx) => {
      await trx.batchInsert('notes', [{ id: 'a' }, { id: 'b' }, { id: 'c' }], 2)
      expect(await failureOf(trx.batchInsert('notes', [{ id: 'd' }, { id: 'a' }], 1))).toMatchObject({ code: '23505' })
    })
    expect(await bench.notes()).toEqual(['a', 'b', 'c'])
  })

  test('nests read only, and refuses another isolation level', async () => {
    await inside(async (trx) => {
      const reading = trx.transaction((part) => part('notes').insert({ id: 'refused' }), { readOnly: true })
      expect(await failureOf(reading)).toMatchObject({ code: '25006' })
      const other = async (): Promise<unknown> =>
        trx.transaction(async () => undefined, { isolationLevel: 'serializable' })
      expect(await failureOf(other())).toBeInstanceOf(TransactionControlError)
      await trx('notes').insert({ id: 'after' })
    })
    expect(await bench.notes()).toEqual(['after'])
  })

  test('refuses a transaction of postgres.js', async () => {
    const failed = bench.open('postgres.js').lockstep.transaction({}, (tx) => knex(tx, instance))
    expect(await failureOf(failed)).toBeInstanceOf(DriverUnsupportedError)
  })
})

test('clientOf() refuses what is no transaction of Knex', async () => {
  expect(await failureOf(clientOf(instance as Knex.Transaction))).toBeInstanceOf(DriverUnsupportedError)
})
