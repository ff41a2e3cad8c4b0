import { setImmediate as turn } from 'node:timers/promises'
import type pg from 'pg'
import type { Sql } from 'postgres'
import { describe, expect, test } from 'vitest'
import { collectGarbage } from '../../tools/server/testing/isCollected.ts'
import { failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { type Transaction, TransactionEndedError } from '../index.ts'

const bench = await testBench()

describe('leftovers of other callers', () => {
  test('does not run a query in another transaction that was awaited after the end of its own, postgres.js', async () => {
    const { lockstep } = bench.open('postgres.js', { max: 1 })
    const lazy: PromiseLike<unknown>[] = []
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const sql = tx.client as unknown as Sql
      lazy.push(sql`INSERT INTO notes VALUES ('lazy')`, sql.unsafe(`INSERT INTO notes VALUES ('unsafe')`))
    })
    await lockstep.transaction({ lock: 'Stock:1' }, async (tx) => {
      await note(tx, 'own')
      for (const query of lazy) expect(await failureOf(Promise.resolve(query))).toBeInstanceOf(TransactionEndedError)
    })
    expect(await bench.notes()).toEqual(['own'])
  })

  test.each(['open', 'failed'])('does not continue a transaction that its user left %s, pg', async (state) => {
    const { lockstep, pool, query } = bench.open('pg', { max: 1 })
    await lockstep.transaction({}, async () => undefined)
    const forgetful = await (pool as pg.Pool).connect()
    await forgetful.query(`BEGIN; INSERT INTO notes VALUES ('theirs')`)
    if (state === 'failed') await forgetful.query('SELECT 1/0').catch(() => undefined)
    forgetful.release()
    await lockstep.transaction({ lock: 'Order:1' }, (tx) => note(tx, 'ours'))
    expect(await bench.notes()).toEqual(['ours'])
    expect(await query('SELECT 1 AS one')).toEqual([{ one: 1 }])
  })

  test.each(['a transaction', 'a savepoint'])(
    'keeps no former transaction alive when a job restarts itself inside %s',
    async (place) => {
      const { lockstep } = bench.open('pg', { max: 2 })
      const former: WeakRef<Transaction>[] = []
      const alive = await new Promise<number>((resolve, reject) => {
        const tick = (): void => {
          const over = signal()
          const job = async (tx: Transaction): Promise<void> => {
            former.push(new WeakRef(tx))
            if (former.length < 40) return void over.given.then(tick)
            // A WeakRef holds on to its object until the current turn is over.
            await turn()
            collectGarbage()
            resolve(former.filter((each) => each.deref() !== undefined).length)
          }
          lockstep
            .transaction({ lock: 'Job:tick' }, (tx) => (place === 'a savepoint' ? tx.savepoint(job) : job(tx)))
            .then(() => over.give(), reject)
        }
        tick()
      })
      expect(alive).toBeLessThan(10)
    },
  )
})
