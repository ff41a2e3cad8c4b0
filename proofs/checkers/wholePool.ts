import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from 'postgres'
import pg from 'pg'
import { GRACE_MS } from './leftovers.ts'

/** Whether as many connections as the pool may have can be had from it at the same time. */
export async function poolIsWhole(pool: pg.Pool | Sql, size: number): Promise<boolean> {
  const take = (): Promise<{ release(): void }> => (pool instanceof pg.Pool ? pool.connect() : pool.reserve())
  // postgres.js hands the last words of a terminated session to the next one who asks for that connection: ask twice.
  const taken = Array.from({ length: size }, () => take().catch(take))
  const all = await Promise.race([Promise.all(taken).then(() => true), sleep(GRACE_MS, false)])
  // Also those that come late, so that the pool can be closed.
  for (const one of taken) void one.then((connection) => connection.release())
  return all
}
