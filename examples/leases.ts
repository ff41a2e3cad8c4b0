/**
 * One change at a time to a machine that is not in the database.
 *
 * The idea: a request starts a slow change of a machine, and then writes the outcome. A lock would hold a
 * transaction open all that time. A lease holds only a row. A request that finds it taken fails at once, and answers "busy". The result is
 * written in `lease.transaction`, which cannot commit once another caller may have the lease.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { key, type Lease, LeaseHeldError, LeaseLostError, Lockstep } from 'pg-lockstep'

export interface LeasesResult {
  readonly requests: number
  readonly withoutLease: { readonly mostAtOnce: number }
  readonly withLease: {
    /** The most changes that the machine had to make at one time. */
    readonly mostAtOnce: number
    readonly done: number
    /** Requests that received at once that another one holds the lease: 409. */
    readonly busy: number
    /** How many changes the database knows of. */
    readonly written: number
  }
  /** A request whose lease was taken away while the machine was at work. */
  readonly late: { readonly error: string; readonly written: number }
}

const REQUESTS = 12

/** Stands for something slow that knows nothing of the database: a cloud, a device, a build. */
class Machine {
  mostAtOnce = 0
  #atOnce = 0

  async resize(): Promise<void> {
    this.#atOnce++
    this.mostAtOnce = Math.max(this.mostAtOnce, this.#atOnce)
    await delay(30)
    this.#atOnce--
  }
}

export async function run(pool: pg.Pool): Promise<LeasesResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query('CREATE TABLE instances (id text PRIMARY KEY, changes integer NOT NULL)')
  await pool.query(`INSERT INTO instances VALUES ('42', 0)`)

  const write = (lease: Lease): Promise<unknown> =>
    lease.transaction({}, (tx) => tx.query(`UPDATE instances SET changes = changes + 1 WHERE id = '42'`))
  const written = async (): Promise<number> =>
    (await pool.query<{ changes: number }>('SELECT changes FROM instances')).rows[0]?.changes ?? -1

  // Without a lease every request gets through to the machine.
  const unguarded = new Machine()
  await Promise.all(Array.from({ length: REQUESTS }, () => unguarded.resize()))

  const machine = new Machine()
  async function request(): Promise<'done' | 'busy'> {
    try {
      await lockstep.lease(key`Instance:${42}`, { ttlMs: 10_000 }, async (lease) => {
        await machine.resize()
        await write(lease)
      })
      return 'done'
    } catch (error) {
      if (error instanceof LeaseHeldError) return 'busy'
      throw error
    }
  }
  const answers = await Promise.all(Array.from({ length: REQUESTS }, request))
  const withLease = {
    mostAtOnce: machine.mostAtOnce,
    done: answers.filter((answer) => answer === 'done').length,
    busy: answers.filter((answer) => answer === 'busy').length,
    written: await written(),
  }

  // An operator takes the lease away in the middle of the slow step. The machine has done it; the database must not say so.
  const lateError = await lockstep
    .lease(key`Instance:${42}`, { ttlMs: 10_000 }, async (lease) => {
      await machine.resize()
      await lockstep.leases.forceRelease(key`Instance:${42}`, { by: 'an operator', reason: 'it seems to hang' })
      await write(lease)
      return 'no error'
    })
    .catch((error: unknown) => (error instanceof LeaseLostError ? `LeaseLostError: ${error.reason}` : String(error)))
  const late = { error: lateError, written: await written() }

  await lockstep.close()
  return { requests: REQUESTS, withoutLease: { mostAtOnce: unguarded.mostAtOnce }, withLease, late }
}
