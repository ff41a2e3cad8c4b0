import type pg from 'pg'
import type { Sql } from 'postgres'
import { describe, expect, test } from 'vitest'
import { ormsAreInstalled } from '../../tools/orms/load.ts'
import { orms } from '../../tools/orms/orms.ts'
import { type DriverName, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import { SavepointOpenError, TransactionControlError, TransactionRolledBackError } from '../index.ts'

const bench = await testBench()

/** Whether another session can have the lock. */
async function isFree(driver: DriverName): Promise<boolean> {
  const id = bench.open(driver).lockstep.lockId('Order:1')
  const { rows } = await bench.admin.query<{ free: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS free', [id])
  return rows[0]?.free === true
}

/** An error and those that it wraps. */
function causes(error: unknown): unknown[] {
  const { cause, driverError } = error as { cause?: unknown; driverError?: unknown }
  return [error, cause, driverError]
}

describe.skipIf(!ormsAreInstalled())('ORMs on tx.client', () => {
  describe.each(orms)('$name', ({ name, driver, takes, open }) => {
    test('runs its transaction as a part of ours', async () => {
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const orm = await open(tx.client)
        await orm.insert('plain')
        await orm.transaction(async (part) => {
          await part.insert('one')
          await part.insert('two')
        })
        expect(await isFree(driver)).toBe(false)
        expect(await bench.notes()).toEqual([])
        await note(tx, 'ours')
      })
      expect(await bench.notes()).toEqual(['one', 'ours', 'plain', 'two'])
    })

    test('is rolled back with the outer transaction', async () => {
      const { lockstep } = bench.open(driver)
      const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const orm = await open(tx.client)
        await orm.insert('plain')
        await orm.transaction((part) => part.insert('inner'))
        throw new Error('outer')
      })
      await expect(outer).rejects.toThrow('outer')
      expect(await bench.notes()).toEqual([])
      expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'free')).toBe('free')
    })

    test('rolls back only its own transaction on a failure', async () => {
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const orm = await open(tx.client)
        await orm.insert('before')
        const thrown = orm.transaction(async (part) => {
          await part.insert('undone')
          throw new Error('inner')
        })
        await expect(thrown).rejects.toThrow('inner')
        const failed = orm.transaction(async (part) => {
          await part.insert('undone')
          await part.insert('before')
        })
        await expect(failed).rejects.toThrow()
        expect(await isFree(driver)).toBe(false)
        await orm.insert('after')
        await note(tx, 'ours')
      })
      expect(await bench.notes()).toEqual(['after', 'before', 'ours'])
    })

    test('does not report a swallowed failure as committed', async () => {
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const orm = await open(tx.client)
        await orm.insert('before')
        const swallowing = orm.transaction(async (part) => {
          await part.insert('undone')
          await part.insert('before').catch(() => undefined)
        })
        expect(causes(await failureOf(swallowing))).toContainEqual(expect.any(TransactionRolledBackError))
        await orm.insert('after')
      })
      expect(await bench.notes()).toEqual(['after', 'before'])
    })

    test('runs its transactions one after the other', async () => {
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const run = async (id: string, fails: boolean): Promise<void> => {
          // Those that send BEGIN on what they are given need a client each.
          const client = takes === 'pool' ? tx.client : await (tx.client as unknown as pg.Pool).connect()
          const orm = await open(client)
          await orm.transaction(async (part) => {
            await part.insert(id)
            await part.insert(`${id} again`)
            if (fails) throw new Error(id)
          })
        }
        const ends = await Promise.allSettled([run('a', false), run('b', true), note(tx, 'ours'), run('c', false)])
        expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled'])
      })
      expect(await bench.notes()).toEqual(['a', 'a again', 'c', 'c again', 'ours'])
    })

    test('nests on the same client, and is rejected on another', async () => {
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: 'Order:1', waitMs: 1000 }, async (tx) => {
        const orm = await open(tx.client)
        await orm.transaction(async (part) => {
          await part.insert('outer')
          const inner = orm.transaction((nested) => nested.insert('inner'))
          if (takes === 'client') await inner
          else expect(causes(await failureOf(inner))).toContainEqual(expect.any(SavepointOpenError))
        })
      })
      expect(await bench.notes()).toEqual(takes === 'client' ? ['inner', 'outer'] : ['outer'])
    })

    test.skipIf(name === 'Kysely')('supports its own nesting', async () => {
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const orm = await open(tx.client)
        await orm.transaction(async (part) => {
          await part.insert('kept')
          const failing = part.nested(async (inner) => {
            await inner.insert('undone')
            throw new Error('nested')
          })
          await expect(failing).rejects.toThrow('nested')
          await part.nested((inner) => inner.insert('kept too'))
        })
      })
      expect(await bench.notes()).toEqual(['kept', 'kept too'])
    })
  })
})

describe('postgres.js by hand', () => {
  test('rejects COMMIT through unsafe() and as a template', async () => {
    const { lockstep } = bench.open('postgres.js')
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const sql = tx.client as unknown as Sql
      await note(tx, 'lost')
      for (const query of [sql.unsafe('COMMIT'), sql`COMMIT`, sql`${sql`COMMIT`}`, sql.unsafe('SELECT 1; COMMIT')])
        expect(await failureOf(query.execute())).toBeInstanceOf(TransactionControlError)
      expect(await isFree('postgres.js')).toBe(false)
      throw new Error('outer')
    })
    await expect(outer).rejects.toThrow('outer')
    expect(await bench.notes()).toEqual([])
  })
})
