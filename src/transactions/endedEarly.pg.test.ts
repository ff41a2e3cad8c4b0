import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { type AnyClient, noteBy, ofTransaction } from '../../tools/server/testing/clientOf.ts'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import { Lockstep, type Transaction, TransactionEndedEarlyError } from '../index.ts'
import { on } from '../observe/index.ts'
import { hold } from '../testing/index.ts'

const bench = await testBench()

/** Sends a statement where Lockstep sees a string: with this setting off, the server reads a backslash otherwise. */
async function smuggle(client: AnyClient, control: string): Promise<void> {
  await client.send('SET LOCAL standard_conforming_strings = off')
  await client.send(`SELECT 'x\\''; ${control}; --'`)
}

async function events(): Promise<number> {
  const { rows } = await bench.admin.query<{ n: number }>('SELECT count(*)::int AS n FROM lockstep.outbox_events')
  return rows[0]?.n ?? -1
}

describe.each(DRIVERS)('a transaction that other code has ended, %s', (driver) => {
  const endings: [string, 'committed' | 'rolledBack'][] = [
    ['COMMIT', 'committed'],
    ['COMMIT AND CHAIN', 'committed'],
    ['COMMIT; BEGIN', 'committed'],
    ['ROLLBACK', 'rolledBack'],
    ['ROLLBACK AND CHAIN', 'rolledBack'],
  ]

  describe.each(endings)('%s', (control, outcome) => {
    const stays = outcome === 'committed' ? ['before'] : []
    // Without a transaction the statement after it is its own.
    const alone = ['COMMIT', 'ROLLBACK'].includes(control) ? ['after'] : []

    test.each([
      ['read committed', undefined],
      ['serializable', undefined],
      ['read committed', false],
      ['serializable', false],
    ] as const)('is never reported as committed: %s, retry %s', async (isolation, retry) => {
      const { lockstep } = bench.open(driver, { max: 1 })
      let runs = 0
      const released: unknown[] = []
      const stop = on('lock.released', (event) => released.push(event.outcome))
      const options = { lock: 'Order:1', isolation, ...(retry === false && { retry }) } as const
      const ended = lockstep.transaction(options, async (tx) => {
        runs++
        const client = ofTransaction(driver, tx)
        await noteBy(client, 'before')
        await smuggle(client, control)
        await note(tx, 'after')
        return 'as if nothing were wrong'
      })
      const error = await failureOf(ended)
      stop()
      expect(error).toBeInstanceOf(TransactionEndedEarlyError)
      const told = retry === false ? 'unknown' : outcome
      expect(error).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ENDED_EARLY', keys: ['Order:1'], outcome: told })
      expect(runs).toBe(1)
      expect(released).toEqual([told])
      expect(await bench.notes()).toEqual([...alone, ...stays])
      expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'free')).toBe('free')
    })

    test('does not send its events and statements for COMMIT', async () => {
      const { lockstep } = bench.open(driver, { max: 1 })
      const before = await events()
      const ended = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        const client = ofTransaction(driver, tx)
        await tx.queryAtCommit(`INSERT INTO notes VALUES ('at commit')`)
        await tx.enqueue({ topic: 'orders', key: '1', payload: {} })
        await noteBy(client, 'before')
        await smuggle(client, control)
      })
      expect(await failureOf(ended)).toBeInstanceOf(TransactionEndedEarlyError)
      expect(await bench.notes()).toEqual(stays)
      expect(await events()).toBe(before)
    })

    test('is reported when the function throws', async () => {
      const { lockstep } = bench.open(driver, { max: 1 })
      const thrown = Object.assign(new Error('conflict'), { code: '40001' })
      let runs = 0
      const ended = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        runs++
        const client = ofTransaction(driver, tx)
        await noteBy(client, 'before')
        await smuggle(client, control)
        throw thrown
      })
      expect(await failureOf(ended)).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ENDED_EARLY', outcome, cause: thrown })
      expect(runs).toBe(1)
      expect(await bench.notes()).toEqual(stays)
    })
  })

  test('is reported inside a savepoint and inside BEGIN on the client', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const ways: ((tx: Transaction) => Promise<unknown>)[] = [
      (tx) => tx.savepoint((inner) => smuggle(ofTransaction(driver, inner), 'COMMIT')),
      async (tx) => {
        const client = ofTransaction(driver, tx)
        await client.send('BEGIN')
        await smuggle(client, 'COMMIT')
        await client.send('COMMIT')
      },
    ]
    for (const way of ways) {
      for (const swallows of [true, false]) {
        const ended = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
          const failure = await failureOf(way(tx))
          if (!swallows) throw failure
        })
        expect(await failureOf(ended)).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ENDED_EARLY', outcome: 'committed' })
      }
    }
  })

  test('is reported with what was committed when a later statement failed', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const ended = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await noteBy(client, 'before')
      await smuggle(client, 'COMMIT AND CHAIN')
      await tx.query('SELECT 1/0').catch(() => undefined)
    })
    expect(await failureOf(ended)).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ENDED_EARLY', outcome: 'committed' })
    expect(await bench.notes()).toEqual(['before'])
  })
})

describe('control statements past tx.client, pg', () => {
  test('are found by the transaction status of the server', async () => {
    const pool = new pg.Pool({ connectionString: bench.url, max: 1 })
    const lockstep = new Lockstep(pool)
    let raw: pg.PoolClient | undefined
    pool.on('acquire', (client) => (raw = client))
    const ended = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'before')
      await raw?.query('COMMIT')
      return 'as if nothing were wrong'
    })
    expect(await failureOf(ended)).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ENDED_EARLY', outcome: 'committed' })
    await lockstep.close()
    await pool.end()
  })

  test('are found before COMMIT when a query object hides them', async () => {
    const { lockstep } = bench.open('pg', { max: 1 })
    const liar = (answer: () => void): pg.Query => {
      const query = new pg.Query('SELECT 1', answer)
      query.submit = (connection) => connection.query('COMMIT AND CHAIN')
      return query
    }
    const ended = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'before')
      await new Promise<void>((resolve) => {
        ;(tx.client as unknown as pg.PoolClient).query(liar(resolve))
      })
    })
    expect(await failureOf(ended)).toMatchObject({ code: 'LOCKSTEP_TRANSACTION_ENDED_EARLY', outcome: 'committed' })
    expect(await bench.notes()).toEqual(['before'])
  })
})

describe.each(DRIVERS)('the check before COMMIT, %s', (driver) => {
  test.each([
    ['read committed', 'advisory'],
    ['repeatable read', 'advisory'],
    ['serializable', 'advisory'],
    ['read committed', 'table'],
  ] as const)('accepts what is still one transaction: %s, strategy %s', async (isolation, strategy) => {
    const { lockstep } = bench.open(driver, { max: 2, strategy })
    let count = 0
    for (const retry of [{ attempts: 3 }, false] as const) {
      const work = (): Promise<void> =>
        lockstep.transaction({ lock: 'Order:1', isolation, retry }, async (tx) => {
          const client = ofTransaction(driver, tx)
          await client.send('BEGIN')
          await noteBy(client, `${++count}`)
          await client.send('COMMIT')
          await client.send('RESET ALL')
          if (count % 2 === 0) await tx.queryAtCommit('SELECT 1')
        })
      for (let round = 0; round < 3; round++) await work()
      await Promise.all([work(), work(), work()])
    }
    expect(await bench.notes()).toHaveLength(12)
  })

  test('accepts one that had to wait for its lock at the server', async () => {
    const { lockstep } = bench.open(driver)
    for (const retry of [{ attempts: 3 }, false] as const) {
      const { release: letGo } = await hold(bench.open(driver).lockstep, 'Order:1')
      const waiting = lockstep.transaction({ lock: 'Order:1', retry }, async (tx) => {
        await noteBy(ofTransaction(driver, tx), `retry ${String(retry !== false)}`)
      })
      await bench.waiters(1)
      await letGo()
      await waiting
    }
    expect(await bench.notes()).toEqual(['retry false', 'retry true'])
  })

  test('costs no round trip', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { max: 1, url: proxy.url(bench.url) })
    const trips = async (work: (tx: Transaction) => Promise<unknown>): Promise<number> => {
      const before = proxy.roundTrips
      await lockstep.transaction({ lock: 'Order:1' }, work)
      return proxy.roundTrips - before
    }
    for (const text of ['SELECT 1', 'SELECT 2']) await trips((tx) => ofTransaction(driver, tx).send(text))
    const without = await trips((tx) => tx.query('SELECT 1 AS by_query'))
    expect(await trips((tx) => ofTransaction(driver, tx).send('SELECT 1'))).toBe(without)
  })

  test('passes an error of COMMIT on', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    await bench.admin.query(`
      CREATE TABLE IF NOT EXISTS firsts (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
    const violating = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await ofTransaction(driver, tx).send('INSERT INTO firsts VALUES (1), (1)')
    })
    expect(await failureOf(violating)).toMatchObject({ code: '23505' })
    const swallowing = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await ofTransaction(driver, tx)
        .send('SELECT 1/0')
        .catch(() => undefined)
    })
    expect(await failureOf(swallowing)).toMatchObject({
      code: 'LOCKSTEP_TRANSACTION_ROLLED_BACK',
      cause: { code: '22012' },
    })
    expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'healthy')).toBe('healthy')
  })
})
