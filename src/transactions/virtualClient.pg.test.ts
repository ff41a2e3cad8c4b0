import { describe, expect, test } from 'vitest'
import { type AnyClient, noteBy, ofTransaction } from '../../tools/server/testing/clientOf.ts'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import {
  SavepointOpenError,
  TransactionControlError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../index.ts'

const bench = await testBench()

describe.each(DRIVERS)('transactions on tx.client, %s', (driver) => {
  /** Whether another session can have the lock. */
  const isFree = async (): Promise<boolean> => {
    const id = bench.open(driver).lockstep.lockId('Order:1')
    const { rows } = await bench.admin.query<{ free: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS free', [id])
    return rows[0]?.free === true
  }

  test.each([
    ['BEGIN', 'COMMIT'],
    ['begin;', 'end;'],
    ['START TRANSACTION', 'COMMIT WORK'],
    ['/* orm */ BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE', 'COMMIT AND NO CHAIN'],
    ['BEGIN TRANSACTION ISOLATION LEVEL READ UNCOMMITTED', 'END TRANSACTION'],
    ['BEGIN NOT DEFERRABLE', '-- done\nCOMMIT'],
  ])('%s … %s are savepoints of the outer transaction', async (begin, commit) => {
    const { lockstep } = bench.open(driver)
    for (const fails of [false, true]) {
      const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const client = ofTransaction(driver, tx)
        await client.send(begin)
        await noteBy(client, 'inner')
        await client.send(commit)
        expect(await isFree()).toBe(false)
        expect(await bench.notes()).toEqual([])
        await note(tx, 'outer')
        if (fails) throw new Error('outer')
      })
      if (fails) await expect(outer).rejects.toThrow('outer')
      else await outer
      expect(await bench.notes()).toEqual(fails ? [] : ['inner', 'outer'])
      await bench.admin.query('TRUNCATE notes')
    }
  })

  test.each(['ROLLBACK', 'abort;', 'ROLLBACK WORK AND NO CHAIN'])(
    'roll back only what was begun with %s',
    async (rollback) => {
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const client = ofTransaction(driver, tx)
        await noteBy(client, 'before')
        await client.send('BEGIN')
        await noteBy(client, 'undone')
        await client.send('SELECT 1/0').catch(() => undefined)
        await client.send(rollback)
        await noteBy(client, 'after')
      })
      expect(await bench.notes()).toEqual(['after', 'before'])
    },
  )

  test('nest to any depth', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      for (let depth = 1; depth <= 5; depth++) {
        await client.send('BEGIN')
        await noteBy(client, `${depth}`)
      }
      for (const end of ['COMMIT', 'ROLLBACK', 'COMMIT', 'COMMIT', 'COMMIT']) await client.send(end)
      expect(await failureOf(client.send('COMMIT'))).toBeInstanceOf(TransactionControlError)
    })
    expect(await bench.notes()).toEqual(['1', '2', '3'])
  })

  test('fail COMMIT after a caught error', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await client.send('BEGIN')
      await noteBy(client, 'kept')
      await client.send('BEGIN')
      await noteBy(client, 'undone')
      await client.send('SELECT 1/0').catch(() => undefined)
      const error = await failureOf(client.send('COMMIT'))
      expect(error).toBeInstanceOf(TransactionRolledBackError)
      expect(error).toMatchObject({ cause: { code: '22012' } })
      // As Drizzle, Kysely and TypeORM do.
      await client.send('ROLLBACK')
      await noteBy(client, 'kept too')
      await client.send('COMMIT')
      expect(await failureOf(client.send('ROLLBACK'))).toBeInstanceOf(TransactionControlError)
    })
    expect(await bench.notes()).toEqual(['kept', 'kept too'])
  })

  test('fail the transaction when left open', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const leaving = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await client.send('BEGIN')
      await noteBy(client, 'left')
    })
    expect(await failureOf(leaving)).toBeInstanceOf(TransactionRolledBackError)
    expect(await bench.notes()).toEqual([])
    expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'free')).toBe('free')
  })

  test('keep READ ONLY until their end', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await client.send('BEGIN READ ONLY')
      expect(await failureOf(noteBy(client, 'x'))).toMatchObject({ code: '25006' })
      await client.send('ROLLBACK')
      await client.send('BEGIN READ ONLY')
      // The server itself refuses that; what was begun is not there, and the outer one is as it was.
      expect(await failureOf(client.send('BEGIN READ WRITE'))).toMatchObject({ code: '25001' })
      expect(await client.send('SELECT 1 AS one')).toEqual([{ one: 1 }])
      await client.send('COMMIT')
      await noteBy(client, 'kept')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  const refused = [
    'COMMIT',
    'ROLLBACK',
    'END',
    'ABORT',
    'COMMIT AND CHAIN',
    'ROLLBACK AND CHAIN',
    'BEGIN ISOLATION LEVEL SERIALIZABLE',
    'START TRANSACTION ISOLATION LEVEL REPEATABLE READ',
    'BEGIN ISOLATION LEVEL READ COMMITTED, ISOLATION LEVEL SERIALIZABLE',
    'BEGIN DEFERRABLE',
    'BEGIN SOMETHING ELSE',
    `PREPARE TRANSACTION 'x'`,
    `PREPARE/**/TRANSACTION 'x'`,
    `COMMIT PREPARED 'x'`,
    `ROLLBACK PREPARED 'x'`,
    'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE',
    'SET LOCAL TRANSACTION ISOLATION LEVEL SERIALIZABLE',
    `SET transaction_isolation = 'serializable'`,
    'SET TRANSACTION READ ONLY',
    'SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE',
    `INSERT INTO notes VALUES ('hidden'); COMMIT`,
    `INSERT INTO notes VALUES ('hidden'); COMMIT; BEGIN`,
    `BEGIN; INSERT INTO notes VALUES ('hidden'); COMMIT`,
    `SELECT '; --'; /* ' */ COMMIT`,
  ]
  test.each(refused)('reject %s before it is sent', async (text) => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await noteBy(client, 'before')
      const error = await failureOf(client.send(text))
      expect(error).toBeInstanceOf(TransactionControlError)
      expect((error as Error).message).toContain('not sent')
      expect(await isFree()).toBe(false)
      await noteBy(client, 'after')
    })
    expect(await bench.notes()).toEqual(['after', 'before'])
  })

  test('reject AND CHAIN', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await client.send('BEGIN')
      for (const text of ['COMMIT AND CHAIN', 'ROLLBACK AND CHAIN'])
        expect(await failureOf(client.send(text))).toBeInstanceOf(TransactionControlError)
      await noteBy(client, 'kept')
      await client.send('COMMIT')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('accept BEGIN with the level of the transaction', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', isolation: 'serializable' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await client.send('BEGIN ISOLATION LEVEL SERIALIZABLE')
      await client.send('SET TRANSACTION ISOLATION LEVEL SERIALIZABLE')
      await noteBy(client, 'kept')
      await client.send('COMMIT')
      expect(await failureOf(client.send('BEGIN ISOLATION LEVEL READ COMMITTED'))).toBeInstanceOf(
        TransactionControlError,
      )
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('accept savepoints of the caller, and reject those of Lockstep', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      const [{ pid } = {}] = await client.send('SELECT pg_backend_pid() AS pid')
      await client.send('BEGIN')
      const { rows } = await bench.admin.query<{ query: string }>('SELECT query FROM pg_stat_activity WHERE pid = $1', [
        pid,
      ])
      const ours = rows[0]?.query.split(' ')[1] ?? ''
      expect(ours).toMatch(/^lockstep_/)
      for (const text of [
        `RELEASE ${ours}`,
        `ROLLBACK TO SAVEPOINT ${ours.toUpperCase()}`,
        `SELECT 1; RELEASE "${ours}"`,
      ])
        expect(await failureOf(client.send(text)), text).toBeInstanceOf(TransactionControlError)
      await client.send('SAVEPOINT mine')
      await noteBy(client, 'undone')
      await client.send('ROLLBACK TO SAVEPOINT mine; RELEASE mine')
      await noteBy(client, 'kept')
      await client.send('COMMIT')
      expect(await failureOf(tx.query(`ROLLBACK TO ${ours}`))).toBeInstanceOf(TransactionControlError)
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('accept several statements in one text without control statements', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await client.send(`
        CREATE TEMP TABLE parts (id int);
        CREATE FUNCTION pg_temp.both() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END;
        CREATE PROCEDURE pg_temp.commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
        INSERT INTO notes VALUES ('COMMIT; ROLLBACK');`)
    })
    expect(await bench.notes()).toEqual(['COMMIT; ROLLBACK'])
  })

  test('belong to the tx.savepoint() around them', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const failing = tx.savepoint(async (inner) => {
        const client = ofTransaction(driver, inner)
        await client.send('BEGIN')
        await noteBy(client, 'undone')
        await client.send('COMMIT')
        throw new Error('inner')
      })
      await expect(failing).rejects.toThrow('inner')
      await note(tx, 'kept')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('work in a joined transaction', async () => {
    const caller = bench.open(driver)
    await caller.begin('', async (given) => {
      const tx = await caller.lockstep.join(given, { lock: 'Order:1' })
      const client = ofTransaction(driver, tx)
      await client.send('BEGIN')
      await noteBy(client, 'undone')
      await client.send('ROLLBACK')
      expect(await failureOf(client.send('COMMIT'))).toBeInstanceOf(TransactionControlError)
      await noteBy(client, 'kept')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('are retried after a conflict, even if it was caught', async () => {
    const { lockstep } = bench.open(driver)
    let runs = 0
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      if (++runs > 1) return
      const conflict = `DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$`
      await client.send(conflict).catch(() => undefined)
    })
    expect(runs).toBe(2)
  })
})

describe.each(DRIVERS)('several clients of one transaction, %s', (driver) => {
  test('run one after the other, and fail separately', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const pool = ofTransaction(driver, tx)
      const steps: string[] = []
      const work = async (name: string, end: string): Promise<void> => {
        const client = await pool.another()
        try {
          await client.send('BEGIN')
          steps.push(`${name} in`)
          await noteBy(client, name)
          await noteBy(client, `${name} again`)
          steps.push(`${name} out`)
          await client.send(end)
        } finally {
          client.release()
        }
      }
      await Promise.all([work('a', 'COMMIT'), work('b', 'ROLLBACK'), noteBy(pool, 'plain'), work('c', 'COMMIT')])
      expect(steps).toEqual(['a in', 'a out', 'b in', 'b out', 'c in', 'c out'])
    })
    expect(await bench.notes()).toEqual(['a', 'a again', 'c', 'c again', 'plain'])
  })

  test('keep the order of their own statements while they wait', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const pool = ofTransaction(driver, tx)
      const [one, two] = [await pool.another(), await pool.another()]
      await one.send('BEGIN')
      // None of them is awaited before the next is sent.
      const sent = [two.send('BEGIN'), noteBy(two, 'undone'), two.send('ROLLBACK'), noteBy(two, 'kept')]
      await noteBy(one, 'one')
      await one.send('COMMIT')
      await Promise.all(sent)
      one.release()
      two.release()
    })
    expect(await bench.notes()).toEqual(['kept', 'one'])
  })

  test('are rejected when each waits for the other', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', waitMs: 1000 }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await client.send('BEGIN')
      const error = await failureOf(note(tx, 'refused'))
      expect(error).toBeInstanceOf(SavepointOpenError)
      expect((error as Error).message).toContain('begun on a client')
      await noteBy(client, 'kept')
      await client.send('COMMIT')
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('are rolled back and unusable after release()', async () => {
    const { lockstep } = bench.open(driver)
    let late: AnyClient | undefined
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const pool = ofTransaction(driver, tx)
      const client = await pool.another()
      await client.send('BEGIN')
      await client.send('BEGIN')
      await noteBy(client, 'undone')
      client.release()
      client.release()
      expect(await failureOf(client.send('SELECT 1'))).toBeInstanceOf(TransactionEndedError)
      await note(tx, 'kept')
      late = await pool.another()
      await late.send('BEGIN')
      await noteBy(late, 'undone')
      // The function returns before the server has answered.
      late.release()
    })
    expect(await failureOf((late as AnyClient).send('SELECT 1'))).toBeInstanceOf(TransactionEndedError)
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('reject a waiting statement when released', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const pool = ofTransaction(driver, tx)
      const [one, two] = [await pool.another(), await pool.another()]
      await one.send('BEGIN')
      const waiting = [failureOf(two.send('BEGIN')), failureOf(noteBy(two, 'never'))]
      // Both have reached the client.
      await new Promise((resolve) => setImmediate(resolve))
      two.release()
      await one.send('COMMIT')
      one.release()
      for (const refusal of await Promise.all(waiting)) expect(refusal).toBeInstanceOf(TransactionEndedError)
    })
    expect(await bench.notes()).toEqual([])
  })
})
