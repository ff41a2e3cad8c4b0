import { setTimeout as delay } from 'node:timers/promises'
import { key } from 'pg-lockstep'
import { exclusive, fetchHandler } from 'pg-lockstep/http'
import { lockstep } from '../../../../lockstep.js'

const oneAtATime = exclusive(lockstep, {
  key: (request) => key`Instance:${new URL(request.url).pathname.split('/')[2]}`,
  lease: { ttlMs: 2_000 },
})

/** Reads, works elsewhere for a while, and writes: one request at a time, in all processes. */
export const POST = fetchHandler(oneAtATime, async (request, lease, { params }) => {
  const { id } = await params
  const last = await lockstep.transaction({}, async (tx) => {
    const { rows } = await tx.query('SELECT max(step) AS step FROM steps WHERE instance = $1', [id])
    return rows[0].step ?? 0
  })
  await delay(5)
  await lease.transaction({}, (tx) => tx.query('INSERT INTO steps (instance, step) VALUES ($1, $2)', [id, last + 1]))
  return Response.json({ step: last + 1 })
})
