import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { createConsole } from 'pg-lockstep/console'
import { CONSOLE_ROLE, CONSOLE_SHARE, FORGET_STATEMENTS, PREPARE_CONSOLE_ROLE } from './load.sql.ts'

/** What the console's own questions take of the database's time. */
export interface ConsoleShare {
  readonly percent: number
  readonly questions: number
}

/** A console with its viewers. */
export interface WatchedConsole {
  share(): Promise<ConsoleShare>
  close(): Promise<void>
}

const VIEWERS = 3
/** What is asked when the first viewer comes is not how it continues. */
const SETTLE_MS = 1000

/**
 * The console with viewers of all tabs, from the beginning of the load to its end. Its sessions have a role of their own, by which
 * pg_stat_statements can separate them from the others.
 */
export async function watchConsole(databaseUrl: string, admin: pg.Pool): Promise<WatchedConsole> {
  await admin.query(PREPARE_CONSOLE_ROLE)
  const url = new URL(databaseUrl)
  url.username = CONSOLE_ROLE
  const pool = new pg.Pool({ connectionString: url.href, max: 2, application_name: 'load-console' })
  // A session that was ended is replaced; the console shows that to its viewers meanwhile.
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  const site = createConsole(lockstep)
  const viewers = Array.from({ length: VIEWERS }, async () => {
    const stream = await site.fetch(new Request('http://localhost/api/stream?show=overview,locks,leases,outbox'))
    for await (const _ of stream.body ?? []) continue
  })
  await sleep(SETTLE_MS)
  await admin.query(FORGET_STATEMENTS)
  return {
    async share() {
      const { rows } = await admin.query<{ ours: number; everybody: number; questions: number }>(CONSOLE_SHARE)
      const { ours = 0, everybody = 0, questions = 0 } = rows[0] ?? {}
      return { percent: (100 * ours) / everybody, questions }
    },
    async close() {
      await site.close()
      await Promise.all(viewers)
      await lockstep.close()
      await pool.end()
    },
  }
}
