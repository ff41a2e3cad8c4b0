import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { createConsole } from 'pg-lockstep/console'
import type { DeskEvents } from './desk.ts'
import { Metrics } from './http/metrics.ts'

/**
 * The console in the supervisor, on a port of its own, where the desk is several processes: who is logged in is known to one process, and
 * the next request may come to another.
 */
export interface SeparateConsole {
  readonly port: number
  /** Of the supervisor itself, and what the database says for all processes. */
  readonly metrics: Metrics
  close(): Promise<void>
}

export interface ConsolePlan {
  readonly url: string
  readonly host: string
  readonly operator: boolean
  readonly consoleToken?: string
}

const POOL_SIZE = 3

export async function startSeparateConsole({
  url,
  host,
  operator,
  consoleToken,
}: ConsolePlan): Promise<SeparateConsole> {
  const pool = new pg.Pool({ connectionString: url, application_name: 'desk-console', max: POOL_SIZE })
  pool.on('error', () => {})
  const lockstep = new Lockstep<DeskEvents, pg.Pool>(pool)
  const metrics = new Metrics({ pool, lockstep, processName: 'supervisor' }, { database: true })
  const site = createConsole(lockstep, {
    base: '/console',
    operator,
    ...(consoleToken !== undefined && { token: consoleToken }),
  })
  const server = createServer(site.listener).listen(0, host)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    metrics,
    async close() {
      await site.close()
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
      await lockstep.close()
      metrics.close()
      await pool.end()
    },
  }
}

/** What a process of the desk answers below /console: where it is. */
export function redirectToConsole(port: number) {
  return {
    fetch(request: Request): Response {
      const place = new URL(request.url)
      place.port = String(port)
      return new Response(null, { status: 307, headers: { location: place.href } })
    },
    close: (): Promise<void> => Promise.resolve(),
  }
}
