/**
 * Finishes what is left of the jobs when the adapters have ended, and compares: every job that was enqueued has its effect once, and the effects of
 * a key are in order. Prints one JSON object. Environment: `DATABASE_URL`.
 */
import { open, workerOf } from './jobs.ts'
import { AUDIT } from './publicHarness.sql.ts'

const DRAIN_MS = 120_000

async function audit(url: string): Promise<object> {
  const { pool, lockstep } = open(url, 12)
  try {
    const { left } = await workerOf(lockstep, { workMs: 0, audited: true }).drain({ maxMs: DRAIN_MS })
    const { rows } = await pool.query<Readonly<Record<'enqueued' | 'effects' | 'twice' | 'disordered', number>>>(AUDIT)
    const [found] = rows
    if (found === undefined) throw new Error('the ledger gave no answer')
    const { enqueued, effects, twice, disordered } = found
    return { enqueued, lost: enqueued - (effects - twice), twice, disordered, parked: left.parkedStreams }
  } finally {
    await lockstep.close()
    await pool.end()
  }
}

const url = process.env['DATABASE_URL']
if (url === undefined) throw new Error('DATABASE_URL is not set')
process.stdout.write(`${JSON.stringify(await audit(url))}\n`)
