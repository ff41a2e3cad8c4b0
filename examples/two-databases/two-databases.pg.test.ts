import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Bank } from './bank.ts'

describe('accounts in two databases', async () => {
  const databases = [await testDatabase(), await testDatabase()]
  const pools = databases.map(({ url }) => new pg.Pool({ connectionString: url, max: 8 }))
  const bank = new Bank(pools.map((pool, place) => ({ name: place === 0 ? 'north' : 'south', pool })))
  const stop = new AbortController()
  const accounts = Array.from({ length: 8 }, (_, n) => `account-${n}`)
  let running: Promise<void> = Promise.resolve()

  beforeAll(async () => {
    await bank.migrate()
    for (const account of accounts) await bank.open(account, 100)
    running = bank.run({ signal: stop.signal })
  })
  afterAll(async () => {
    stop.abort()
    await running
    await bank.close()
    await Promise.all(pools.map((pool) => pool.end()))
  })

  async function balances(): Promise<Record<string, number>> {
    const found: Record<string, number> = {}
    for (const pool of pools) {
      const { rows } = await pool.query<{ id: string; balance: number }>(
        'SELECT id, balance FROM accounts WHERE moved_to IS NULL',
      )
      for (const { id, balance } of rows) found[id] = balance
    }
    return found
  }
  const total = async (): Promise<number> => Object.values(await balances()).reduce((sum, each) => sum + each, 0)
  const settled = { timeout: 60_000, interval: 20 }

  test('keeps the total over transfers between them', async () => {
    await Promise.all(
      accounts.flatMap((from, n) =>
        [1, 2, 3].map((step) =>
          bank.transfer({ id: `${from}-${step}`, from, to: accounts[(n + step) % 8] as string, amount: step }),
        ),
      ),
    )
    // Each account has paid 6 and received 6.
    await expect.poll(balances, settled).toEqual(Object.fromEntries(accounts.map((account) => [account, 100])))
  })

  test('refunds what is sent to an account that does not exist', async () => {
    await Promise.all(
      ['nobody-1', 'nobody-2', 'nobody-3'].map((to) => bank.transfer({ id: to, from: 'account-0', to, amount: 5 })),
    )
    await expect.poll(async () => (await balances())['account-0'], settled).toBe(100)
  })

  test('forwards to an account that was moved, behind the move', async () => {
    for (const destination of ['north', 'south', 'north']) {
      await expect
        .poll(
          () =>
            bank.move('account-1', destination).then(
              () => true,
              () => false,
            ),
          settled,
        )
        .toBe(true)
      await bank.transfer({ id: `after-${destination}`, from: 'account-2', to: 'account-1', amount: 10 })
    }
    await expect.poll(async () => (await balances())['account-1'], settled).toBe(130)
    await expect.poll(total, settled).toBe(800)
  })

  test('changes nothing when everything is sent once more', async () => {
    const before = await balances()
    expect((await bank.replay('north', 'south')) + (await bank.replay('south', 'north'))).toBeGreaterThan(10)
    expect(await balances()).toEqual(before)
  })

  test('refuses to overdraw', async () => {
    await expect(bank.transfer({ id: 'large', from: 'account-3', to: 'account-4', amount: 1000 })).rejects.toThrow(
      'The account account-3 has less than 1000.',
    )
  })
})
