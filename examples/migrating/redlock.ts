/**
 * From redlock: a holder loses its lock, another caller gets it, and the first one continues and writes.
 *
 * With redlock, the late write overwrites that of the second holder. Under a lease it cannot commit.
 */
import type pg from 'pg'
import { key, LeaseLostError, Lockstep } from 'pg-lockstep'

/** What the old code uses of redlock. */
export interface Redlock {
  acquire(names: string[], ttlMs: number): Promise<{ release(): Promise<unknown> }>
}

const TABLE = `
  DROP TABLE IF EXISTS instances;
  CREATE TABLE instances (id text PRIMARY KEY, size integer NOT NULL);
  INSERT INTO instances VALUES ('42', 1)`
const WRITE = 'UPDATE instances SET size = $1 WHERE id = $2'
const READ = `SELECT size FROM instances WHERE id = '42'`

/** `lose` makes Redis forget the lock, as a failover without the last write does. The first caller writes 2, the second one 3. */
export async function before(pool: pg.Pool, redlock: Redlock, lose: () => Promise<unknown>): Promise<{ size: number }> {
  await pool.query(TABLE)

  async function resize(instance: string, size: number, slowStep: () => Promise<unknown>): Promise<void> {
    const lock = await redlock.acquire([`instance:${instance}`], 30_000)
    await slowStep()
    await pool.query(WRITE, [size, instance])
    await lock.release().catch(() => undefined) // it cannot be released if it was lost
  }

  await resize('42', 2, async () => {
    await lose()
    await resize('42', 3, async () => undefined)
  })
  const { rows } = await pool.query<{ size: number }>(READ)
  return { size: rows[0]?.size ?? 0 }
}

export async function after(pool: pg.Pool): Promise<{ size: number; late: 'refused' | 'written' }> {
  await pool.query(TABLE)
  const lockstep = new Lockstep(pool)

  async function resize(instance: string, size: number, slowStep: () => Promise<unknown>): Promise<void> {
    await lockstep.lease(key`Instance:${instance}`, { ttlMs: 30_000 }, async (lease) => {
      await slowStep()
      await lease.transaction({}, (tx) => tx.query(WRITE, [size, instance]))
    })
  }

  const late = await resize('42', 2, async () => {
    await lockstep.leases.forceRelease(key`Instance:${'42'}`, { by: 'the example', reason: 'the lease is lost' })
    await resize('42', 3, async () => undefined)
  }).then(
    () => 'written' as const,
    (error: unknown) => {
      if (!(error instanceof LeaseLostError)) throw error
      return 'refused' as const
    },
  )
  const { rows } = await pool.query<{ size: number }>(READ)
  await lockstep.close()
  return { size: rows[0]?.size ?? 0, late }
}
