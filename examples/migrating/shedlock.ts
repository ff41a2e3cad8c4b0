/**
 * From a lock table as ShedLock has it: a job takes longer than `lockAtMostFor`.
 *
 * With the table, the second process starts the job while the first one still runs it. A lease is renewed as long as its holder runs.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'

const AT_MOST_MS = 200
const TABLE = `
  DROP TABLE IF EXISTS shedlock;
  CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamptz NOT NULL)`
const LOCK = `
  INSERT INTO shedlock VALUES ($1, clock_timestamp() + make_interval(secs => $2))
  ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until WHERE shedlock.lock_until <= clock_timestamp()`
const UNLOCK = 'UPDATE shedlock SET lock_until = clock_timestamp() WHERE name = $1'

/** How many processes run the job at the same time. */
export async function run(pool: pg.Pool, leased: boolean): Promise<{ readonly atOnce: number }> {
  await pool.query(TABLE)
  const processes = [new Lockstep(pool), new Lockstep(pool)] as const
  let running = 0
  let atOnce = 0

  async function before(name: string, job: () => Promise<void>): Promise<void> {
    const { rowCount } = await pool.query(LOCK, [name, AT_MOST_MS / 1000])
    if (rowCount === 0) return
    await job()
    await pool.query(UNLOCK, [name])
  }

  async function after(lockstep: Lockstep, name: string, job: () => Promise<void>): Promise<void> {
    await using lease = await lockstep.leases.tryAcquire(key`Job:${name}`, { ttlMs: AT_MOST_MS })
    if (lease === undefined) return
    await job()
  }

  const start = (process: Lockstep, job: () => Promise<void>): Promise<void> => {
    const counted = async (): Promise<void> => {
      atOnce = Math.max(atOnce, ++running)
      await job()
      running--
    }
    return leased ? after(process, 'report', counted) : before('report', counted)
  }

  await start(processes[0], async () => {
    await pool.query('SELECT pg_sleep($1)', [(AT_MOST_MS * 2) / 1000]) // the job takes twice as long as it should
    await start(processes[1], async () => undefined)
  })
  for (const process of processes) await process.close()
  return { atOnce }
}
