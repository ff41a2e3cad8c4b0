/**
 * Cron in one process: three processes have the same timer, and the report must be sent once.
 *
 * The job takes too long for a transaction, so it runs under a lease. A process that finds the lease held skips this time. One that comes
 * after the job has ended finds the row that the job has written.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { meeting } from './meeting.ts'

export async function run(pool: pg.Pool, locked: boolean): Promise<{ readonly reports: number }> {
  await pool.query('DROP TABLE IF EXISTS job_runs; CREATE TABLE job_runs (job text NOT NULL, due timestamptz NOT NULL)')
  const processes = Array.from({ length: 3 }, () => new Lockstep(pool))
  const meet = meeting(3, locked)
  let reports = 0

  async function hasRun(job: string, due: string): Promise<boolean> {
    const { rows } = await pool.query('SELECT 1 FROM job_runs WHERE job = $1 AND due = $2', [job, due])
    return rows.length > 0
  }

  async function sendReport(): Promise<void> {
    await meet()
    reports++
  }

  async function onTimer(lockstep: Lockstep, job: string, due: string): Promise<void> {
    if (!locked) {
      if (await hasRun(job, due)) return
      await sendReport()
      await pool.query('INSERT INTO job_runs VALUES ($1, $2)', [job, due])
      return
    }
    await using lease = await lockstep.leases.tryAcquire(key`Job:${job}`, { ttlMs: 30_000 })
    if (lease === undefined || (await hasRun(job, due))) return
    await sendReport()
    await lease.transaction({}, (tx) => tx.query('INSERT INTO job_runs VALUES ($1, $2)', [job, due]))
  }

  await Promise.all(processes.map((lockstep) => onTimer(lockstep, 'daily-report', '2030-05-01T06:00:00Z')))
  for (const lockstep of processes) await lockstep.close()
  return { reports }
}
