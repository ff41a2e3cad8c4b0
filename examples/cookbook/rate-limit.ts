/**
 * Rate-limited worker: a partner allows one call in a window of time, and two workers are ready.
 *
 * A worker counts the calls of the window and adds its own if there is one left. The lock names the partner, so workers that call different
 * partners do not wait for each other. The call itself comes after the transaction.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { meeting } from './meeting.ts'

export async function run(pool: pg.Pool, locked: boolean): Promise<{ readonly calls: number }> {
  const lockstep = new Lockstep(pool)
  await pool.query(`
    DROP TABLE IF EXISTS partner_calls;
    CREATE TABLE partner_calls (partner text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`)
  const meet = meeting(2, locked)

  async function mayCall(partner: string, limit: number, windowSeconds: number): Promise<boolean> {
    return lockstep.transaction(locked ? { lock: key`RateLimit:${partner}` } : {}, async (tx) => {
      const { rows } = await tx.query<{ used: number }>(
        `SELECT count(*)::integer AS used FROM partner_calls
          WHERE partner = $1 AND at > clock_timestamp() - make_interval(secs => $2)`,
        [partner, windowSeconds],
      )
      await meet()
      if ((rows[0]?.used ?? 0) >= limit) return false
      await tx.query('INSERT INTO partner_calls (partner) VALUES ($1)', [partner])
      return true
    })
  }

  const allowed = await Promise.all([mayCall('bank', 1, 3600), mayCall('bank', 1, 3600)])
  await lockstep.close()
  return { calls: allowed.filter(Boolean).length }
}
