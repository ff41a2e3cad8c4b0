import { beforeEach, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Lockstep, RetriesExhaustedError, type Transaction, type TransactionOptions } from '../index.ts'
import { on } from '../observe/index.ts'

/**
 * What a shared lock does where the snapshot is the transaction's: it keeps readers and an exclusive holder apart, so that neither
 * fails. Holders of the shared lock run in parallel: between those that write, PostgreSQL decides, as if there were no lock.
 */

const bench = await testBench()

const RATES = key`Rates:global`

beforeEach(() =>
  bench.admin.query(`
    CREATE TABLE IF NOT EXISTS rates (id integer PRIMARY KEY, rate integer NOT NULL);
    TRUNCATE rates;
    INSERT INTO rates VALUES (1, 0), (2, 0)`),
)

async function ratesIn(tx: Transaction): Promise<number[]> {
  const { rows } = await tx.query<{ rate: number }>('SELECT rate FROM rates ORDER BY id')
  return rows.map(({ rate }) => rate)
}

/** Has two transactions read everything before either writes, and gives how they ended. */
async function sideBySide(
  lockstep: Lockstep,
  options: TransactionOptions,
  write: (tx: Transaction, place: 1 | 2) => Promise<unknown>,
): Promise<PromiseSettledResult<unknown>[]> {
  const [one, two] = [signal(), signal()]
  const run = (place: 1 | 2, mine: typeof one, other: typeof one): Promise<unknown> =>
    lockstep.transaction(options, async (tx) => {
      await ratesIn(tx)
      mine.give()
      await other.given
      await write(tx, place)
    })
  return Promise.allSettled([run(1, one, two), run(2, two, one)])
}

const codesOf = (ended: readonly PromiseSettledResult<unknown>[]): unknown[] =>
  ended.flatMap((each) => (each.status === 'rejected' ? [(each.reason as { code?: string }).code] : []))

describe.each(DRIVERS)('%s', (driver) => {
  describe.each(['serializable', 'repeatable read'] as const)('%s', (isolation) => {
    test('never fails readers with the shared and writers with the exclusive lock', async () => {
      const processes = [bench.open(driver, { max: 8 }), bench.open(driver, { max: 8 })]
      const ended = await Promise.allSettled(
        Array.from({ length: 40 }, (_, n) => {
          const { lockstep } = processes[n % 2] as (typeof processes)[number]
          const writes = n % 4 === 0
          const lock = writes ? { lock: RATES } : { lockShared: RATES }
          return lockstep.transaction({ ...lock, isolation, retry: false }, async (tx) => {
            const [first, second] = await ratesIn(tx)
            expect(first).toBe(second)
            if (!writes) return
            await tx.query('UPDATE rates SET rate = rate + 1 WHERE id = 1')
            await tx.query('UPDATE rates SET rate = $1 WHERE id = 2', [(second ?? 0) + 1])
          })
        }),
      )
      expect(ended.filter(({ status }) => status === 'rejected')).toEqual([])
      const { rows } = await bench.admin.query('SELECT rate FROM rates')
      expect(rows).toEqual([{ rate: 10 }, { rate: 10 }])
    })

    test('fails one of two shared holders that write the same row', async () => {
      const { lockstep } = bench.open(driver)
      const ended = await sideBySide(lockstep, { lockShared: RATES, isolation, retry: false }, (tx) =>
        tx.query('UPDATE rates SET rate = rate + 1 WHERE id = 1'),
      )
      expect(codesOf(ended)).toEqual(['40001'])
    })

    test('fails none of them with the exclusive lock', async () => {
      const { lockstep } = bench.open(driver)
      const options: TransactionOptions = { lock: RATES, isolation, retry: false }
      const add = (): Promise<void> =>
        lockstep.transaction(options, async (tx) => {
          await ratesIn(tx)
          await tx.query('UPDATE rates SET rate = rate + 1 WHERE id = 1')
        })
      expect(codesOf(await Promise.allSettled(Array.from({ length: 8 }, add)))).toEqual([])
    })
  })

  test('fails one of two shared holders on a read-write conflict at SERIALIZABLE', async () => {
    const { lockstep } = bench.open(driver)
    const skew = (tx: Transaction, place: 1 | 2): Promise<unknown> =>
      tx.query('UPDATE rates SET rate = rate + 1 WHERE id = $1', [place])
    const serializable = { lockShared: RATES, isolation: 'serializable', retry: false } as const
    expect(codesOf(await sideBySide(lockstep, serializable, skew))).toEqual(['40001'])
    // The other levels do not notice: a caller that needs that takes the exclusive lock.
    for (const isolation of ['repeatable read', 'read committed'] as const) {
      expect(codesOf(await sideBySide(lockstep, { lockShared: RATES, isolation, retry: false }, skew))).toEqual([])
    }
  })

  test('explains in the error that shared holders run in parallel', async () => {
    const { lockstep } = bench.open(driver)
    const options: TransactionOptions = { lockShared: RATES, isolation: 'serializable', retry: { attempts: 2 } }
    const error = await failureOf(
      lockstep.transaction(options, async (tx) => {
        await ratesIn(tx)
        // Another writer is quicker in every attempt.
        await bench.admin.query('UPDATE rates SET rate = rate + 1')
        await tx.query('UPDATE rates SET rate = rate + 1')
      }),
    )
    expect(error).toBeInstanceOf(RetriesExhaustedError)
    expect((error as RetriesExhaustedError).advice).toContain('`lock` in place of `lockShared`')
  })

  test('completes all shared holders with retry', async () => {
    const { lockstep } = bench.open(driver, { max: 8 })
    let retries = 0
    const stop = on('transaction.retried', () => void retries++)
    try {
      let arrived = 0
      const both = signal()
      await Promise.all(
        [1, 2].map(() =>
          lockstep.transaction({ lockShared: RATES, isolation: 'serializable' }, async (tx) => {
            await ratesIn(tx)
            if (++arrived === 2) both.give()
            await both.given
            await tx.query('UPDATE rates SET rate = rate + 1 WHERE id = 1')
          }),
        ),
      )
    } finally {
      stop()
    }
    expect(retries).toBeGreaterThanOrEqual(1)
    expect((await bench.admin.query('SELECT rate FROM rates WHERE id = 1')).rows).toEqual([{ rate: 2 }])
  })
})
