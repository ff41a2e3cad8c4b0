import type pg from 'pg'
import type { Sql } from 'postgres'
import { describe, expect, test } from 'vitest'
import { jobQueue } from '../../tools/server/testing/jobQueue.ts'
import { DRIVERS, type DriverName, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, type Lockstep, TransactionControlError } from '../index.ts'

const bench = await testBench()

const INSERT = 'INSERT INTO notes VALUES ($1)'

/** Code that knows a pool and nothing else. */
interface Repository {
  insert(id: string): Promise<unknown>
  /** In a transaction of its own. */
  insertTwo(id: string, fails?: boolean): Promise<unknown>
}

function onPg(pool: pg.Pool): Repository {
  return {
    insert: (id) => pool.query(INSERT, [id]),
    async insertTwo(id, fails = false) {
      const client = await pool.connect()
      try {
        await client.query('BEGIN')
        await client.query(INSERT, [id])
        await client.query(INSERT, [`${id} too`])
        await client.query(fails ? 'ROLLBACK' : 'COMMIT')
      } finally {
        client.release()
      }
    },
  }
}

function onPostgresJs(sql: Sql): Repository {
  return {
    insert: (id) => sql`INSERT INTO notes VALUES (${id})`.execute(),
    async insertTwo(id, fails = false) {
      const work = sql.begin(async (part) => {
        await part`INSERT INTO notes VALUES (${id})`
        await part.unsafe(INSERT, [`${id} too`])
        if (fails) throw FAILS
      })
      await work.catch((error: unknown) => {
        if (error !== FAILS) throw error
      })
    },
  }
}

const FAILS = new Error('as intended')

function open(driver: DriverName): { lockstep: Lockstep; repository: Repository } {
  const { lockstep } = bench.open(driver)
  const pool: unknown = lockstep.pool({ ambient: true })
  return { lockstep, repository: driver === 'pg' ? onPg(pool as pg.Pool) : onPostgresJs(pool as Sql) }
}

describe.each(DRIVERS)('lockstep.pool({ ambient: true }), %s', (driver) => {
  test('is part of the transaction that the code runs in', async () => {
    const { lockstep, repository } = open(driver)
    const work = async (): Promise<void> => {
      await repository.insert('one')
      await repository.insertTwo('kept')
      await repository.insertTwo('undone', true)
    }
    const failed = lockstep.transaction({ lock: 'Order:1' }, async () => {
      await work()
      throw FAILS
    })
    await expect(failed).rejects.toThrow(FAILS)
    expect(await bench.notes()).toEqual([])
    await lockstep.transaction({ lock: 'Order:1' }, async () => {
      await work()
      // Another session sees nothing of it yet.
      expect(await bench.notes()).toEqual([])
    })
    expect(await bench.notes()).toEqual(['kept', 'kept too', 'one'])
  })

  test('is part of the savepoint that the code runs in', async () => {
    const { lockstep, repository } = open(driver)
    await lockstep.transaction({}, async (tx) => {
      await repository.insert('before')
      const failed = tx.savepoint(async () => {
        await repository.insert('undone')
        throw FAILS
      })
      await expect(failed).rejects.toThrow(FAILS)
      await repository.insert('after')
    })
    expect(await bench.notes()).toEqual(['after', 'before'])
  })

  test('is the pool outside of transactions, after their end and in detached()', async () => {
    const { lockstep, repository } = open(driver)
    const ended = signal()
    let late: Promise<unknown> | undefined
    const failed = lockstep.transaction({}, async () => {
      late = ended.given.then(() => repository.insert('late'))
      await lockstep.detached(() => repository.insert('detached'))
      throw FAILS
    })
    await expect(failed).rejects.toThrow(FAILS)
    ended.give()
    await late
    await repository.insert('outside')
    expect(await bench.notes()).toEqual(['detached', 'late', 'outside'])
  })

  test('does not mix two transactions that run at once', async () => {
    const { lockstep, repository } = open(driver)
    const [bothOpen, other] = [signal(), signal()]
    const kept = lockstep.transaction({ lock: 'Order:1' }, async () => {
      await repository.insert('kept')
      other.give()
      await bothOpen.given
      await repository.insertTwo('kept last')
    })
    const undone = lockstep.transaction({ lock: 'Order:2' }, async () => {
      await other.given
      await repository.insertTwo('undone')
      bothOpen.give()
      await kept
      throw FAILS
    })
    await expect(undone).rejects.toThrow(FAILS)
    expect(await bench.notes()).toEqual(['kept', 'kept last', 'kept last too'])
  })

  // The hazard that the documentation names. It cannot be distinguished from code that belongs to the transaction.
  test('hazard: a job queue that requests share puts the job of one request into the transaction of another', async () => {
    const { lockstep, repository } = open(driver)
    const ofB = async (run: (job: () => Promise<unknown>) => Promise<unknown>, id: string): Promise<void> => {
      const add = jobQueue()
      const [working, queued] = [signal(), signal()]
      let b: Promise<unknown> | undefined
      const a = lockstep.transaction({ lock: 'Order:a' }, async (tx) => {
        await add(async () => {
          await note(tx, 'of A')
          working.give()
          await queued.given
        })
        await b
        throw FAILS
      })
      await working.given
      b = add(() => run(() => repository.insert(id)))
      queued.give()
      await expect(a).rejects.toThrow(FAILS)
      await b
    }
    await ofB((job) => job(), 'of B, reported as written')
    expect(await bench.notes()).toEqual([])
    await ofB((job) => lockstep.detached(job), 'of B, detached')
    expect(await bench.notes()).toEqual(['of B, detached'])
  })

  test('refuses to end the transaction or the connection', async () => {
    const { lockstep } = bench.open(driver)
    const pool: unknown = lockstep.pool({ ambient: true })
    await lockstep.transaction({}, async () => {
      const commit = driver === 'pg' ? (pool as pg.Pool).query('COMMIT') : (pool as Sql).unsafe('COMMIT').execute()
      await expect(commit).rejects.toThrow(TransactionControlError)
    })
  })

  test('has to be asked for by name', () => {
    const { lockstep } = bench.open(driver)
    expect(() => lockstep.pool({} as never)).toThrow(InvalidOptionError)
    expect(() => lockstep.pool({ ambient: false } as never)).toThrow(InvalidOptionError)
    expect(() => lockstep.pool({ ambiant: true } as never)).toThrow(InvalidOptionError)
  })
})
