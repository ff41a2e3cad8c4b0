/**
 * Finishes what is left of the jobs when the adapters have ended, and compares: every job that was enqueued has its effect once, and the effects of
 * a key are in order. Prints one JSON object. Environment: `DATABASE_URL`.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Consumer } from 'pg-lockstep'
import { open, workerOf } from './jobs.ts'
import { AUDIT } from './publicHarness.sql.ts'

const WITHIN_MS = 90_000
const AGAIN_MS = 500

async function audit(url: string): Promise<object> {
  const { pool, lockstep } = open(url, 12)
  try {
    const parked = await finish(workerOf(lockstep, { workMs: 0, audited: true }))
    const { rows } = await pool.query<Readonly<Record<'enqueued' | 'effects' | 'twice' | 'disordered', number>>>(AUDIT)
    const [found] = rows
    if (found === undefined) throw new Error('the ledger gave no answer')
    const { enqueued, effects, twice, disordered } = found
    return { enqueued, lost: enqueued - (effects - twice), twice, disordered, parked }
  } finally {
    await lockstep.close()
    await pool.end()
  }
}

/** Shards of a process that was killed are free after a while, and so are streams that are tried again. Gives how many streams have stopped. */
async function finish(worker: Consumer): Promise<number> {
  for (const until = performance.now() + WITHIN_MS; ; await sleep(AGAIN_MS)) {
    const { left } = await worker.drain()
    if (left.events + left.parkedStreams + left.heldShards === 0 || performance.now() > until) return left.parkedStreams
  }
}

const url = process.env['DATABASE_URL']
if (url === undefined) throw new Error('DATABASE_URL is not set')
process.stdout.write(`${JSON.stringify(await audit(url))}\n`)
