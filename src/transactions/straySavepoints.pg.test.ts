import { describe, expect, test } from 'vitest'
import { type Client, DRIVERS, failureOf, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { type Transaction, TransactionEndedError, TransactionRolledBackError } from '../index.ts'

const bench = await testBench()

describe.each(DRIVERS)('a savepoint that outlives its transaction, %s', (driver) => {
  /** Fails beside a savepoint that is still at work; the answer lets that continue, and waits for its end. */
  async function leaveSavepointBehind({ lockstep }: Client): Promise<() => Promise<unknown>> {
    const [opened, goOn] = [signal(), signal()]
    let stray: Promise<unknown> = Promise.resolve()
    const culprit = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      stray = failureOf(
        tx.savepoint(async (inner) => {
          await note(inner, 'stray')
          opened.give()
          await goOn.given
        }),
      )
      await opened.given
      throw new Error('the sibling failed')
    })
    await expect(culprit).rejects.toThrow('the sibling failed')
    return async () => {
      goOn.give()
      return stray
    }
  }

  const victims: Record<string, (tx: Transaction, meanwhile: () => Promise<unknown>) => Promise<unknown>> = {
    'a plain transaction': (_, meanwhile) => meanwhile(),
    'one in a savepoint of its own': (tx, meanwhile) =>
      tx.savepoint(async (inner) => {
        await note(inner, 'in a savepoint')
        return meanwhile()
      }),
    'one with a savepoint that its caller named': async (tx, meanwhile) => {
      await tx.query('SAVEPOINT lockstep_1')
      await note(tx, 'in a savepoint')
      return meanwhile()
    },
  }

  test.each(Object.keys(victims))('does not touch the next user of the connection: %s', async (kind) => {
    const client = bench.open(driver, { max: 1 })
    const letStrayEnd = await leaveSavepointBehind(client)
    await client.lockstep.transaction({ lock: 'Stock:1', retry: false }, async (tx) => {
      await note(tx, 'before')
      const stray = await victims[kind]?.(tx, letStrayEnd)
      expect(stray).toBeInstanceOf(TransactionEndedError)
      await note(tx, 'then')
    })
    expect((await bench.notes()).filter((each) => each !== 'in a savepoint')).toEqual(['before', 'then'])
    expect(await bench.notes()).toHaveLength(kind === 'a plain transaction' ? 2 : 3)
  })

  test('writes nothing of an inner transaction that was not awaited', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const [half, goOn] = [signal(), signal()]
    let inner: Promise<unknown> = Promise.resolve()
    const outer = lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'outer')
      inner = failureOf(
        tx.transaction({ lock: 'Order:1' }, async (part) => {
          await note(part, 'taken from one')
          half.give()
          await goOn.given
          await note(part, 'given to the other')
        }),
      )
      await half.given
      return 'done'
    })
    expect(await failureOf(outer)).toBeInstanceOf(TransactionRolledBackError)
    goOn.give()
    expect(await inner).toBeInstanceOf(TransactionEndedError)
    expect(await lockstep.transaction({ lock: 'Order:1' }, async () => 'next')).toBe('next')
    expect(await bench.notes()).toEqual([])
  })

  test('keeps a query beside an open savepoint that fails', async () => {
    const { lockstep } = bench.open(driver)
    const [opened, asked] = [signal(), signal()]
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      const optional = tx.savepoint(async (inner) => {
        await note(inner, 'undone')
        opened.give()
        await asked.given
        await inner.query('SELECT 1')
        throw new Error('the optional part')
      })
      const beside = opened.given.then(() => {
        const kept = note(tx, 'kept')
        asked.give()
        return kept
      })
      const [first, second] = await Promise.allSettled([optional, beside])
      expect([first.status, second.status]).toEqual(['rejected', 'fulfilled'])
    })
    expect(await bench.notes()).toEqual(['kept'])
  })
})
