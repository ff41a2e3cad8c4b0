import type { Knex } from 'knex'
import type pg from 'pg'
import { describe, expectTypeOf, test } from 'vitest'
import type { Lockstep } from '../index.ts'
import { clientOf, knex } from './knex.ts'

interface Account {
  id: string
  balance: number
}

declare const lockstep: Lockstep<{ accounts: { balance: number } }, pg.Pool>
declare const instance: Knex

// Nothing here is run: the compiler is the test.
describe('knex()', () => {
  test('has the types of Knex', () =>
    lockstep.transaction({ lock: 'Account:1' }, async (tx) => {
      const trx = await knex(tx, instance)
      expectTypeOf(trx).toExtend<Knex.Transaction>()
      const account = await trx<Account>('accounts').where({ id: '1' }).first()
      expectTypeOf(account).toEqualTypeOf<Account | undefined>()
      await trx.transaction(async (part) => {
        expectTypeOf(part).toExtend<Knex.Transaction>()
      })
    }))

  test('clientOf() takes a transaction, and no Knex without one', () => {
    const take = (trx: Knex.Transaction): void => {
      expectTypeOf(clientOf(trx)).toEqualTypeOf<Promise<object>>()
      // @ts-expect-error: it has no transaction
      void clientOf(instance)
    }
    expectTypeOf(take).toBeFunction()
  })
})
