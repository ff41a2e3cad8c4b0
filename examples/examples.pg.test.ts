import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../tools/server/testDatabase.ts'
import { run as events } from './events.ts'
import { run as join } from './join.ts'
import { run as lostUpdate } from './lost-update.ts'
import { run as serializableWallet } from './serializable-wallet.ts'
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
  leakGuard(database)

  test('transfer: no money is made or lost, and no account goes below zero', async () => {
    const { alice, bob, refused } = await outcomeOf(database.url, transfer)
    expect(alice + bob).toBe(200)
    expect(alice).toBeGreaterThanOrEqual(0)
    expect(bob).toBeGreaterThanOrEqual(0)
    // Thirty transfers of 10 from alice, ten to her: 100 and at most 100 more cover at most twenty.
    expect(refused).toBeGreaterThanOrEqual(10)
  })

  test('lost-update: without the lock updates are lost, with it none', async () => {
    const { callers, withoutLock, withLock } = await outcomeOf(database.url, lostUpdate)
    expect(withoutLock).toBeLessThan(callers)
    expect(withLock).toBe(callers)
  })

  test('serializable-wallet: the rule holds and nobody is run twice', async () => {
    expect(await outcomeOf(database.url, serializableWallet)).toEqual({ left: 0, paid: 20, retries: 0 })
  })

  test('join: numbers without a gap', async () => {
    const { numbers } = await outcomeOf(database.url, join)
    expect(numbers).toEqual([1, 2, 3, 4, 5, 6])
  })

  test('events: one caller at once, two wait, one rolls back', async () => {
    const { acquired, contended, longestWaitMs, outcomes } = await outcomeOf(database.url, events)
    expect({ acquired, contended, outcomes }).toEqual({
      acquired: 3,
      contended: 2,
      outcomes: { committed: 2, rolledBack: 1 },
    })
    expect(longestWaitMs).toBeGreaterThan(20)
  })
})
