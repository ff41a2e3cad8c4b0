import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { SYSTEMS } from '../systems.ts'
import { examine } from './examine.ts'
import type { LoadOptions } from './options.ts'
import { startOwnDesk } from './ownDesk.ts'
import { reportOf, violationLines } from './report.ts'
import { type Outcome, run } from './run.ts'

const target = await startOwnDesk(3)
afterAll(() => target.close())
const pool = new pg.Pool({ connectionString: target.databaseUrl, max: 2 })
afterAll(() => pool.end())

const options: LoadOptions = {
  minutes: 0.2,
  rate: 25,
  contention: 0.4,
  faults: true,
  processes: 3,
  burst: { signals: 40, transfers: 40 },
  json: false,
  seed: 20_251_022,
  running: undefined,
}
const never = new AbortController().signal
let outcome: Outcome | undefined

test(
  'loses, doubles and half-completes nothing in three processes that are killed and disconnected under load',
  { timeout: 240_000 },
  async () => {
    outcome = await run(target, options, () => undefined, never)
    expect(violationLines(outcome)).toEqual([])
    const { goals, results } = reportOf(outcome, options)
    // `npm run load` measures the speed, on a quiet machine.
    const missed = goals.filter(({ name, holds }) => !holds && !/ (ms|percent)$/.test(name))
    expect(missed.map(({ name, value }) => `${name}: ${value}`)).toEqual([])
    expect(results.map(({ system }) => system)).toEqual(['trades', 'instances', 'positions', 'transfers', 'wallets'])
    for (const row of results) expect(Number(row['acknowledged'])).toBeGreaterThan(0)
  },
)

describe('reports a planted violation', () => {
  test.each([
    [
      'trades',
      'every trade is there as it was acknowledged',
      'DELETE FROM lockstep_desk.trades WHERE place = (SELECT max(place) FROM lockstep_desk.trades)',
    ],
    [
      'instances',
      'every step is there as it was acknowledged',
      `INSERT INTO lockstep_desk.instance_steps (instance, step, task, fence, process, request)
       SELECT instance, step, task, fence, process, request FROM lockstep_desk.instance_steps WHERE request IS NOT NULL LIMIT 1`,
    ],
    [
      'positions',
      'every acknowledged position is there',
      `UPDATE lockstep_desk.positions SET status = 'failed' WHERE status = 'active'`,
    ],
    [
      'transfers',
      'every transfer is there as it was acknowledged',
      `UPDATE lockstep_desk.transfers SET request = 'somebody else' WHERE request =
         (SELECT request FROM lockstep_desk.transfers WHERE request IS NOT NULL AND NOT starts_with(from_account, 'burst') LIMIT 1)`,
    ],
    [
      'wallets',
      'every bid is there as it was acknowledged',
      'DELETE FROM lockstep_desk.bids WHERE place = (SELECT min(place) FROM lockstep_desk.bids)',
    ],
  ])('in %s: %s', async (system, invariant, sql) => {
    expect(outcome).toBeDefined()
    const client = await pool.connect()
    try {
      await client.query(`BEGIN; ${sql}`)
      // The check reads inside the transaction that broke it, which is rolled back.
      const examined = await examine(client, SYSTEMS, outcome?.senders ?? [])
      const findings = examined.find((each) => each.system === system)?.findings
      expect(findings?.find((each) => each.invariant === invariant)?.violations).not.toEqual([])
    } finally {
      await client.query('ROLLBACK')
      client.release()
    }
  })
})
