import pg from 'pg'
import { beforeAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../tools/server/testDatabase.ts'
import { run as cardTokenSequence } from './card-token-sequence.ts'
import { run as events } from './events.ts'
import { run as getOrCreatePosition } from './get-or-create-position.ts'
import { run as hotAccount } from './hot-account.ts'
import { run as join } from './join.ts'
import { run as leases } from './leases.ts'
import { run as lostUpdate } from './lost-update.ts'
import { run as orderedTransfer } from './ordered-transfer.ts'
import { run as serializableWallet } from './serializable-wallet.ts'
import { run as tradesInOrder } from './trades-in-order.ts'
import { run as transfer } from './transfer.ts'

/** Runs an example with a pool of its own; each creates tables of its own names, so they share a database. */
async function outcomeOf<T>(url: string, example: (pool: pg.Pool) => Promise<T>): Promise<T> {
  const pool = new pg.Pool({ connectionString: url })
  try {
    return await example(pool)
  } finally {
    await pool.end()
  }
}

describe('the examples', async () => {
  const database = await testDatabase()

  test('transfer: keeps the total, and no account goes below zero', async () => {
    const { alice, bob, refused } = await outcomeOf(database.url, transfer)
    expect(alice + bob).toBe(200)
    expect(alice).toBeGreaterThanOrEqual(0)
    expect(bob).toBeGreaterThanOrEqual(0)
    // Thirty transfers of 10 from alice, ten to her: 100 and at most 100 more cover at most twenty.
    expect(refused).toBeGreaterThanOrEqual(10)
  })

  test('lost-update: loses updates without the lock and none with it', async () => {
    const { callers, withoutLock, withLock } = await outcomeOf(database.url, lostUpdate)
    expect(withoutLock).toBeLessThan(callers)
    expect(withLock).toBe(callers)
  })

  test('serializable-wallet: keeps the rule, and runs no caller twice', async () => {
    expect(await outcomeOf(database.url, serializableWallet)).toEqual({ left: 0, paid: 20, retries: 0 })
  })

  test('trades-in-order: delivers each portfolio in order, also a parked one, and counts every trade once', async () => {
    const { arrived, positions, agree } = await outcomeOf(database.url, tradesInOrder)
    const inOrder = Array.from({ length: 20 }, (_, n) => n + 1)
    expect(arrived).toEqual({ growth: inOrder, income: inOrder, cash: inOrder })
    expect(positions).toEqual({ growth: 570, income: 590, cash: 610 })
    expect(agree).toBe(true)
  })

  test('join: gives numbers without a gap', async () => {
    const { numbers } = await outcomeOf(database.url, join)
    expect(numbers).toEqual([1, 2, 3, 4, 5, 6])
  })

  test('events: reports one caller at once, two that wait, and one that rolls back', async () => {
    const { acquired, contended, longestWaitMs, outcomes } = await outcomeOf(database.url, events)
    expect({ acquired, contended, outcomes }).toEqual({
      acquired: 3,
      contended: 2,
      outcomes: { committed: 2, rolledBack: 1 },
    })
    expect(longestWaitMs).toBeGreaterThan(20)
  })

  describe('ordered-transfer', () => {
    let result = {} as Awaited<ReturnType<typeof orderedTransfer>>
    beforeAll(async () => {
      result = await outcomeOf(database.url, orderedTransfer)
    })

    test('writes entries that add up to zero, and to the balances', () => {
      const { balances, entries, sumOfEntries } = result
      expect(sumOfEntries).toBe(0)
      expect(entries).toEqual(balances)
      expect(balances).toMatchObject({ bank: -200 })
      expect((balances['alice'] ?? 0) + (balances['bob'] ?? 0)).toBe(200)
    })

    test('avoids deadlocks between opposite transfers, and books each one or rejects it for insufficient funds', () => {
      const { retries, transfers, notCovered } = result
      expect(retries).toBe(0)
      expect(transfers + notCovered).toBe(120)
      // Ninety from alice, thirty to her: 100 and at most 300 more cover at most forty.
      expect(notCovered).toBeGreaterThanOrEqual(50)
      expect(transfers).toBeGreaterThan(0)
    })

    test('rejects invalid transfers, each with its own error', () => {
      const { refused, balances } = result
      expect(refused).toEqual({
        tooMuch: `InsufficientFundsError: alice has ${balances['alice']}, not 1000`,
        toItself: 'SameAccountError: alice cannot pay itself',
        nothing: 'InvalidAmountError: 0 cannot be transferred',
        backwards: 'InvalidAmountError: -10 cannot be transferred',
        fromNobody: 'UnknownAccountError: there is no nobody',
        toNobody: 'UnknownAccountError: there is no nobody',
      })
    })
  })

  test('get-or-create-position: creates one position for two concurrent callers', async () => {
    const result = await outcomeOf(database.url, getOrCreatePosition)
    const { symbols, withoutOnce, positions, createdBy, toldCreated, samePosition } = result
    expect(withoutOnce).toBeGreaterThan(symbols)
    expect([positions, createdBy.length, toldCreated]).toEqual([symbols, symbols, symbols])
    expect(samePosition).toBe(true)
  })

  test('card-token-sequence: gives numbers without a gap under the lock, and only there', async () => {
    const { callers, failed, withLock, withoutLock, withSequence } = await outcomeOf(database.url, cardTokenSequence)
    const issued = callers - failed
    const gapFree = Array.from({ length: issued }, (_, index) => index + 1)
    expect(withLock).toEqual(gapFree)
    expect([withoutLock.length, withSequence.length]).toEqual([issued, issued])
    // Without the lock numbers are there twice, and with a sequence some are missing.
    expect(new Set(withoutLock).size).toBeLessThan(issued)
    expect(withSequence.at(-1)).toBeGreaterThan(issued)
  })

  test('hot-account: combines payments in few transactions, and answers each by itself', async () => {
    const { transactions, ...rest } = await outcomeOf(database.url, hotAccount)
    expect(rest).toEqual({
      shop: 2000,
      customers: 0,
      booksAgree: true,
      sumOfEntries: 0,
      calls: 301,
      paid: 200,
      refused: { InsufficientFundsError: 100, UnknownAccountError: 1 },
    })
    expect(transactions).toBeLessThan(10)
  })
  test('leases: allows one change at a time, and rejects a late one', async () => {
    const { requests, withoutLease, withLease, late } = await outcomeOf(database.url, leases)
    expect(withoutLease.mostAtOnce).toBeGreaterThan(1)
    expect(withLease.mostAtOnce).toBe(1)
    expect(withLease.done + withLease.busy).toBe(requests)
    expect(withLease.done).toBeGreaterThan(0)
    expect(withLease.busy).toBeGreaterThan(0)
    // What is written is what the machine did, change by change.
    expect(withLease.written).toBe(withLease.done)
    expect(late).toEqual({ error: 'LeaseLostError: taken away', written: withLease.written })
  })
})
