import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { checkPositions } from './check.ts'
import { openExchange, openPositionProcess } from './testing/positionBench.ts'

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => admin.end())
const exchange = await openExchange(database.url)
const branch = await openPositionProcess(database.url, exchange.url, 'one')

beforeAll(async () => {
  await branch.post('/positions', { symbol: 'AAA', side: 'long', quantity: 3 })
  await branch.post('/positions', { symbol: 'BBB', side: 'short', quantity: 3 })
  await branch.post('/positions', { symbol: 'CCC', side: 'long', quantity: 3 })
  await branch.post('/positions/CCC/close')
})

const COPY = `
  INSERT INTO lockstep_desk.positions (id, symbol, side, quantity, status, origin, exchange_id)
  SELECT gen_random_uuid(), symbol, side, quantity, status, origin, exchange_id FROM lockstep_desk.positions
   WHERE symbol = 'AAA'`

/** How the rule is broken, and what is said. Each is undone again. */
const PLANTED: readonly (readonly [invariant: string, sql: string, line: RegExp])[] = [
  [
    'no symbol has two open positions at an exchange',
    `DROP INDEX lockstep_desk.positions_one_open_per_exchange; ${COPY}`,
    /^AAA at north has 2 open positions$/,
  ],
  [
    'nothing is left half open or half closed',
    `UPDATE lockstep_desk.positions SET status = 'opening' WHERE symbol = 'BBB'`,
    /^BBB is opening since/,
  ],
  [
    'every active position is at the exchange, as large as the desk says',
    `UPDATE lockstep_desk.positions SET quantity = 4 WHERE symbol = 'BBB'`,
    /^BBB is short 4 at the desk and -3 at the exchange$/,
  ],
  [
    'every active position is at the exchange, as large as the desk says',
    `UPDATE lockstep_exchange.positions SET closed_at = now(), net = 0 WHERE symbol = 'AAA'`,
    /^AAA is long 3 at the desk and 0 at the exchange$/,
  ],
  [
    'every position at the exchange is known to the desk',
    `UPDATE lockstep_desk.positions SET status = 'closed' WHERE symbol = 'AAA'`,
    /^AAA \(3\) is open at the exchange/,
  ],
  [
    'every active position has exactly one live stop-loss',
    `UPDATE lockstep_exchange.orders SET status = 'cancelled' WHERE symbol = 'AAA' AND kind = 'stop'`,
    /^AAA has 0 live stop orders$/,
  ],
  [
    'no stop-loss outlives its position',
    `UPDATE lockstep_exchange.orders SET status = 'live' WHERE symbol = 'CCC' AND kind = 'stop'`,
    /^the stop .* of CCC is live/,
  ],
  [
    'each client order id was executed once',
    `INSERT INTO lockstep_exchange.executions (client_id, symbol, change)
     SELECT client_id, symbol, change FROM lockstep_exchange.executions WHERE symbol = 'AAA'`,
    /-entry was executed 2 times$/,
  ],
  [
    'no signal was executed after its end',
    `UPDATE lockstep_exchange.executions SET at = at + interval '1 hour' WHERE symbol = 'BBB'`,
    /^BBB was entered .* after its end$/,
  ],
  [
    'every position of a signal was entered by an order of its own',
    `DELETE FROM lockstep_exchange.executions WHERE symbol = 'BBB'`,
    /^BBB was never entered$/,
  ],
]

describe('the check', () => {
  test('reports nothing for correct data, with rows to check', async () => {
    const findings = await checkPositions(admin)
    expect(findings.flatMap(({ violations }) => violations)).toEqual([])
    expect(findings.filter(({ looked }) => looked === 0)).toEqual([])
    expect(new Set(PLANTED.map(([invariant]) => invariant))).toEqual(
      new Set(findings.map(({ invariant }) => invariant)),
    )
  })

  test.each(PLANTED)('reports a violation: %s', async (invariant, sql, line) => {
    const client = await admin.connect()
    try {
      await client.query(`BEGIN; ${sql}`)
      // The check reads inside the transaction that broke it, which is rolled back.
      const findings = await checkPositions(client)
      const found = findings.find((finding) => finding.invariant === invariant)
      expect(found?.violations).toEqual([expect.stringMatching(line)])
    } finally {
      await client.query('ROLLBACK')
      client.release()
    }
  })
})
