import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { root } from '../../tools/check/repository.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { recipes } from './recipes.ts'

/** What each program returns: with its protection, and without it. */
const OUTCOMES: Readonly<Record<string, { readonly locked: unknown; readonly control: unknown }>> = {
  'double-booking': { locked: { bookings: 1 }, control: { bookings: 2 } },
  inventory: { locked: { lowestStock: 0 }, control: { lowestStock: -1 } },
  'seat-reservation': { locked: { seatsSoldTwice: 0 }, control: { seatsSoldTwice: 1 } },
  wallet: { locked: { balance: 20 }, control: { balance: -60 } },
  'webhook-receiver': { locked: { credited: 25 }, control: { credited: 50 } },
  cron: { locked: { reports: 1 }, control: { reports: 3 } },
  'rate-limit': { locked: { calls: 1 }, control: { calls: 2 } },
  saga: {
    locked: { orders: { small: 'paid', large: 'cancelled' }, stock: 9, charges: 1 },
    // Charged twice, and the stock of the cancelled order released four times: each of two refusals was delivered twice.
    control: { orders: { small: 'paid', large: 'cancelled' }, stock: 12, charges: 2 },
  },
}

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url })
afterAll(() => pool.end())

test.each(Object.entries(recipes))('%s: is right with its protection, and wrong without it', async (name, run) => {
  expect(await run(pool, true)).toEqual(OUTCOMES[name]?.locked)
  expect(await run(pool, false)).toEqual(OUTCOMES[name]?.control)
})

test('the cookbook has a recipe for each program', async () => {
  const page = await readFile(join(root, 'docs/guides/cookbook.md'), 'utf8')
  for (const name of Object.keys(recipes)) expect(page).toContain(`(../../examples/cookbook/${name}.ts)`)
})
