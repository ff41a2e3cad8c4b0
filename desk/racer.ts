/**
 * One of the two processes of a race. Waits for orders from its parent, and ends with it: the channel between them closes
 * however the parent dies.
 */
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { codeOf, SERIALIZATION_FAILURE } from 'pg-lockstep/postgres'
import type { Order, Report } from './racers.ts'
import { ANYTHING } from './wallets.sql.ts'
import { WAYS } from './ways.ts'

/** How often the parent hears of the progress. */
const REPORT_MS = 50

const pool = new pg.Pool({
  connectionString: process.env['LOCKSTEP_DESK_URL'],
  application_name: `lockstep-racer-${process.argv[2]}`,
  max: 2,
})
pool.on('error', () => {})
const lockstep = new Lockstep(pool)

async function race({ way, increments }: Order): Promise<Report> {
  const { increment, wallet } = WAYS[way]
  const tally = { confirmed: 0, failed: 0 }
  let reportedAt = performance.now()
  for (let turn = 0; turn < increments; turn++) {
    try {
      await increment({ pool, lockstep }, wallet)
      tally.confirmed++
    } catch (error) {
      if (codeOf(error) !== SERIALIZATION_FAILURE) throw error
      tally.failed++
    }
    if (performance.now() - reportedAt > REPORT_MS) {
      reportedAt = performance.now()
      report({ kind: 'progress', ...tally })
    }
  }
  return { kind: 'finished', ...tally }
}

function report(message: Report): void {
  if (process.connected) process.send?.(message)
}

process.on('disconnect', () => process.exit())
if (!process.connected) process.exit()
process.on('message', (order: Order) => {
  race(order).then(report, broken)
})
// Connected beforehand, so that no race begins with one racer still on its way.
pool.query(ANYTHING).then(() => report({ kind: 'ready' }), broken)

function broken(error: unknown): void {
  report({ kind: 'broken', reason: String(error) })
}
