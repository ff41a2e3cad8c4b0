import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { startPostgres } from '../tools/server/postgres.ts'
import type { DeskOptions } from './options.ts'
import type { Screen } from './screen.ts'

export type DeskDatabase = ({ readonly kind: 'ours'; readonly dataDir: string } | { readonly kind: 'yours' }) & {
  readonly url: string
  close(): Promise<void>
}

/** The server of DATABASE_URL, or one of our own. */
export async function openDatabase(options: DeskOptions, screen: Screen, signal: AbortSignal): Promise<DeskDatabase> {
  if (options.url !== undefined) {
    screen.explain('Using the database of DATABASE_URL, in the schemas lockstep, lockstep_desk and lockstep_exchange.')
    return { kind: 'yours', url: options.url, close: async () => {} }
  }
  const fresh = !existsSync(join(options.dataDir, 'PG_VERSION'))
  screen.explain(`${fresh ? 'Making' : 'Starting'} a PostgreSQL in ${options.dataDir} …`)
  const server = await startPostgres({
    dataDir: options.dataDir,
    ...(options.pgPort === undefined ? {} : { port: options.pgPort }),
    // As a server with real data: nothing is made faster than it would be.
    durable: true,
    settings: {
      idle_in_transaction_session_timeout: '60s',
      tcp_keepalives_idle: '30',
      // What each kind of query costs: ask pg_stat_statements, after CREATE EXTENSION.
      shared_preload_libraries: 'pg_stat_statements',
    },
  })
  if (!signal.aborted) screen.explain(`PostgreSQL is up: ${server.url()}`)
  return { kind: 'ours', dataDir: server.dataDir, url: server.url(), close: () => server.stop() }
}
