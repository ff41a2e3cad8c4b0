import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createAdaptorServer } from '@hono/node-server'
import { Hono } from 'hono'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { createConsole } from 'pg-lockstep/console'
import type { DeskEvents } from './desk.ts'
import { bearer } from './http/bearer.ts'
import { Metrics } from './http/metrics.ts'
import { pages } from './http/pages.ts'
import { onlyThisMachine } from './http/sameSite.ts'
import { originOf } from './origin.ts'
import { showApi, showPages } from './show/routes.ts'
import type { Show } from './show/show.ts'

/**
 * The console and the race of the start page in the supervisor, on a port of its own, where the desk is several processes: who is logged in and
 * what runs is known to one process, and the next request may come to another.
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
  /** Of the desk. */
  readonly port: number
  readonly operator: boolean
  readonly token?: string
  readonly consoleToken?: string
  readonly headless?: boolean
}

const POOL_SIZE = 3

export async function startSeparateConsole(
  { url, host, port, operator, token, consoleToken, headless }: ConsolePlan,
  race: Show,
): Promise<SeparateConsole> {
  const pool = new pg.Pool({ connectionString: url, application_name: 'desk-console', max: POOL_SIZE })
  pool.on('error', () => {})
  const lockstep = new Lockstep<DeskEvents, pg.Pool>(pool)
  const metrics = new Metrics({ pool, lockstep, processName: 'supervisor' }, { database: true })
  const site = createConsole(lockstep, {
    base: '/console',
    operator,
    ...(consoleToken !== undefined && { token: consoleToken }),
  })
  const app = new Hono()
  app.mount('/console', (request) => site.fetch(request), { replaceRequest: false })
  const page = headless === true || token !== undefined ? undefined : await showPages(race)
  if (page !== undefined) app.route('/', page)
  app.get('/favicon.svg', (c) => pages().fetch(c.req.raw))
  app.use('/show/*', token === undefined ? onlyThisMachine : bearer(token))
  app.route('/', showApi(race))
  // Everything else is answered by the desk itself.
  app.get('*', (c) => c.redirect(`${originOf(host, port)}${c.req.path}`, 307))
  const server = createAdaptorServer({ fetch: app.fetch }) as Server
  server.listen(0, host)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    metrics,
    async close() {
      await site.close()
      await race.close()
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

function redirect(request: Request, port: number): Response {
  const place = new URL(request.url)
  place.port = String(port)
  return new Response(null, { status: 307, headers: { location: place.href } })
}

/** What a process of the desk answers below /console: where it is. */
export function redirectToConsole(port: number) {
  return {
    fetch: (request: Request): Response => redirect(request, port),
    close: (): Promise<void> => Promise.resolve(),
  }
}

/** The same for the race. */
export function redirectToShow(port: number): { readonly pages: Hono; readonly api: Hono } {
  const [site, api] = [new Hono(), new Hono()]
  for (const path of ['/', '/measured']) site.get(path, (c) => redirect(c.req.raw, port))
  api.all('/show/*', (c) => redirect(c.req.raw, port))
  return { pages: site, api }
}
