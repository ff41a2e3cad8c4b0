import { describe, expect, test } from 'vitest'
import { noteBy, ofTransaction } from '../../tools/server/testing/clientOf.ts'
import {
  DRIVERS,
  failureOf,
  note,
  pidOf,
  type Signal,
  signal,
  testBench,
} from '../../tools/server/testing/workbench.ts'
import {
  ConnectionLostError,
  SavepointOpenError,
  type Transaction,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../index.ts'

const bench = await testBench()

/** Calls it where it runs in no transaction's async context, as a loader does that collects the queries of many callers. */
class Loader {
  readonly #calls: (() => void)[] = []

  constructor() {
    const look = (): void => {
      for (const call of this.#calls.splice(0)) call()
      if (!this.#stopped) setTimeout(look, 1)
    }
    setTimeout(look, 1)
  }

  #stopped = false

  load<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => this.#calls.push(() => void work().then(resolve, reject)))
  }

  stop(): void {
    this.#stopped = true
  }
}

/** Gives the signal that a call was made. */
function called<T>(made: Signal, call: Promise<T>): Promise<T> {
  made.give()
  return call
}

describe.each(DRIVERS)('a statement of an outer tx beside an open savepoint, %s', (driver) => {
  test('is rejected with SavepointOpenError when each waits for the other', async () => {
    const { lockstep } = bench.open(driver)
    const loader = new Loader()
    let refusal: unknown
    const stuck = lockstep.transaction({ lock: 'Order:1', waitMs: 1200 }, async (tx) => {
      await note(tx, 'before')
      await tx.savepoint(async (inner) => {
        await note(inner, 'inside')
        await loader
          .load(() => tx.query('SELECT 1'))
          .catch((error: unknown) => {
            refusal = error
            throw error
          })
      })
    })
    const error = await failureOf(stuck)
    loader.stop()
    expect(error).toBe(refusal)
    expect(error).toBeInstanceOf(SavepointOpenError)
    expect(error).toMatchObject({ code: 'LOCKSTEP_SAVEPOINT_OPEN' })
    expect((error as SavepointOpenError).waitedMs).toBeGreaterThanOrEqual(1190)
    expect((error as Error).message).toContain('a savepoint')
    expect((error as Error).message).toContain('use the tx that fn is given')
    expect(await bench.notes()).toEqual([])
    expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'free')).toBe('free')
  })

  test('is released when the server ends the session', async () => {
    const { lockstep } = bench.open(driver)
    const loader = new Loader()
    const inside = signal()
    let pid = 0
    const stuck = lockstep.transaction({ lock: 'Order:1', waitMs: false, retry: false }, async (tx) => {
      pid = await pidOf(tx)
      await tx.savepoint(async () => {
        await loader.load(() => called(inside, tx.query('SELECT 1')))
      })
    })
    const failure = failureOf(stuck)
    await inside.given
    await bench.admin.query('SELECT pg_terminate_backend($1)', [pid])
    expect(await failure).toBeInstanceOf(ConnectionLostError)
    loader.stop()
  })

  test('does not block close()', async () => {
    const { lockstep } = bench.open(driver)
    const loader = new Loader()
    const inside = signal()
    const stuck = lockstep.transaction({ lock: 'Order:1', waitMs: false }, (tx) =>
      tx.savepoint(async () => {
        await loader.load(() => called(inside, tx.query('SELECT 1')))
      }),
    )
    const failure = failureOf(stuck)
    await inside.given
    await lockstep.close()
    expect(await failure).toBeInstanceOf(SavepointOpenError)
    loader.stop()
  })

  test('is rejected when it is called from inside', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', waitMs: false }, async (tx) => {
      const client = ofTransaction(driver, tx)
      await tx.savepoint(async (inner) => {
        const calls = [
          () => tx.query('SELECT 1'),
          () => tx.savepoint(async () => undefined),
          () => tx.queryAtCommit(`INSERT INTO notes VALUES ('at commit')`),
          () => tx.enqueue({ topic: 'orders', key: '1', payload: {} }),
          () => client.send('SELECT 1'),
          () => client.send('BEGIN'),
        ]
        for (const call of calls) {
          const error = await failureOf(call())
          expect(error).toBeInstanceOf(SavepointOpenError)
          expect(error).toMatchObject({ waitedMs: 0 })
        }
        await inner.savepoint(async () => {
          expect(await failureOf(inner.query('SELECT 1'))).toBeInstanceOf(SavepointOpenError)
          expect(await failureOf(tx.query('SELECT 1'))).toBeInstanceOf(SavepointOpenError)
        })
        await note(inner, 'inside')
      })
      await note(tx, 'after')
    })
    expect(await bench.notes()).toEqual(['after', 'inside'])
  })

  test.each(['tx.query()', 'tx.client'])('is ordered after a failing savepoint, by %s', async (by) => {
    const { lockstep } = bench.open(driver)
    const opened = signal()
    await lockstep.transaction({ lock: 'Order:1', waitMs: 0 }, async (tx) => {
      const client = ofTransaction(driver, tx)
      const failing = tx.savepoint(async (inner) => {
        await note(inner, 'undone')
        opened.give()
        await note(inner, 'undone too')
        throw new Error('inner')
      })
      const beside = opened.given.then(() => (by === 'tx.client' ? noteBy(client, 'beside') : note(tx, 'beside')))
      const [savepoint, written] = await Promise.allSettled([failing, beside])
      expect(savepoint).toMatchObject({ status: 'rejected' })
      expect(written).toMatchObject({ status: 'fulfilled' })
    })
    expect(await bench.notes()).toEqual(['beside'])
  })

  test('keeps events and statements for COMMIT of the outer tx', async () => {
    const { lockstep } = bench.open(driver)
    const opened = signal()
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const failing = tx.savepoint(async (inner) => {
        await inner.queryAtCommit(`INSERT INTO notes VALUES ('dropped')`)
        opened.give()
        await note(inner, 'undone')
        throw new Error('inner')
      })
      const beside = opened.given.then(() => tx.queryAtCommit(`INSERT INTO notes VALUES ('kept')`))
      await Promise.allSettled([failing, beside])
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('runs in the async context of its caller', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const order: string[] = []
      const part = (name: string): Promise<void> =>
        tx.savepoint(async (inner) => {
          order.push(name)
          // It would be refused if this ran inside of the savepoint before it.
          await inner.savepoint((deeper) => note(deeper, name))
        })
      await Promise.all([part('a'), part('b'), tx.query('SELECT 1'), part('c')])
      expect(order).toEqual(['a', 'b', 'c'])
    })
    expect(await bench.notes()).toEqual(['a', 'b', 'c'])
  })
})

describe.each(DRIVERS)('a savepoint that is left open, %s', (driver) => {
  test('fails the savepoint around it, and the transaction continues', async () => {
    const { lockstep } = bench.open(driver)
    const ended = signal()
    let stray: Promise<unknown> | undefined
    let kept: Transaction | undefined
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const middle = tx.savepoint(async (outer) => {
        await note(outer, 'undone')
        const opened = signal()
        stray = failureOf(
          outer.savepoint(async (inner) => {
            kept = inner
            await note(inner, 'half')
            opened.give()
            await ended.given
          }),
        )
        await opened.given
      })
      expect(await failureOf(middle)).toBeInstanceOf(TransactionRolledBackError)
      await note(tx, 'kept')
      ended.give()
      expect(await stray).toBeInstanceOf(TransactionEndedError)
      expect(await failureOf((kept as Transaction).query('SELECT 1'))).toBeInstanceOf(TransactionEndedError)
      await note(tx, 'kept too')
    })
    expect(await bench.notes()).toEqual(['kept', 'kept too'])
  })
})
