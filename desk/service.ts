import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createAdaptorServer } from '@hono/node-server'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { createConsole } from 'pg-lockstep/console'
import { redirectToConsole, redirectToShow } from './separateConsole.ts'
import { showApi, showPages } from './show/routes.ts'
import type { Show } from './show/show.ts'
import type { Desk, DeskEvents, SinkPlan, System } from './desk.ts'
import { ANYTHING } from './desk.sql.ts'
import { type AppParts, createApp } from './http/app.ts'
import { Metrics } from './http/metrics.ts'
import { logEvents } from './logEvents.ts'
import { originOf } from './origin.ts'
import { SYSTEMS } from './systems.ts'

/** What one process of the desk is started with; it can be sent to another process. */
export interface ServicePlan {
  readonly url: string
  readonly exchangeUrl: string
  readonly sink: SinkPlan
  readonly processName: string
  readonly host: string
  /** 0: a free one. */
  readonly port: number
  readonly poolSize: number
  /** How long a request waits for a connection, a lock or its turn; a client has given up by then. */
  readonly waitMs: number
  readonly operator: boolean
  readonly token?: string
  readonly consoleToken?: string
  /** Where the console is, if not in this process. */
  readonly consolePort?: number
  readonly log: boolean
  /** Without the page of the race. */
  readonly headless?: boolean
  /** Without what runs beside the requests. Default: with it. */
  readonly requestsOnly?: boolean
}

/** One process of the desk, at work. */
export interface Service {
  readonly port: number
  readonly desk: Desk
  readonly metrics: Metrics
  /** Stops accepting, finishes what is in progress, and leaves nothing open. */
  close(): Promise<void>
}

/** Requests that are not answered by then are cut off. */
const DEADLINE_MS = 10_000

export async function startService(
  plan: ServicePlan,
  say: (line: string) => void,
  systems: readonly System[] = SYSTEMS,
  /** The metrics of all processes, where this is one of several. */
  metricsOfAll?: () => Promise<string>,
  /** The race of the start page, where it is in this process. */
  race?: Show,
): Promise<Service> {
  const { url, exchangeUrl, processName, token, consoleToken = token, operator, waitMs } = plan
  const pool = new pg.Pool({
    connectionString: url,
    application_name: processName,
    max: plan.poolSize,
    connectionTimeoutMillis: waitMs,
  })
  // A connection that is lost while it is idle is replaced by the next that is needed.
  pool.on('error', () => {})
  const lockstep = new Lockstep<DeskEvents, pg.Pool>(pool, { waitMs, rollout: 'database' })
  const ownOrigin = (): string => originOf(plan.host, (server.address() as AddressInfo).port)
  const desk: Desk = { pool, lockstep, exchangeUrl, waitMs, processName, say, sink: { ...plan.sink, ownOrigin } }
  const background = new AbortController()
  let ending = false
  const stopLog = plan.log ? logEvents(desk) : undefined
  const metrics = new Metrics(desk, { database: metricsOfAll === undefined })
  const console =
    plan.consolePort === undefined
      ? createConsole(lockstep, {
          base: '/console',
          operator,
          ...(consoleToken !== undefined && { token: consoleToken }),
        })
      : redirectToConsole(plan.consolePort)
  const notReady = async (): Promise<string | undefined> => {
    if (ending) return 'It is about to end.'
    try {
      await lockstep.transaction({ waitMs: 1_000, retry: false }, (tx) => tx.query(ANYTHING))
      return undefined
    } catch (error) {
      return `The database does not answer as it should: ${(error as Error).message}`
    }
  }
  const metricsText = metricsOfAll ?? (() => metrics.text())
  const show = await showParts(plan, race)
  const app = createApp(desk, { systems, metrics, metricsText, notReady, token, log: plan.log, console, show })
  const server = createAdaptorServer({ fetch: app.fetch }) as Server
  server.listen(plan.port, plan.host)
  try {
    await once(server, 'listening')
  } catch (error) {
    await pool.end()
    throw error
  }
  const beside = (plan.requestsOnly === true ? [] : systems).map(async (system) =>
    system.background?.(desk, background.signal).catch(failed(system, say)),
  )
  return {
    port: (server.address() as AddressInfo).port,
    desk,
    metrics,
    async close() {
      ending = true
      // Its streams never end by themselves.
      await console.close()
      await race?.close()
      await finish(server)
      background.abort()
      await Promise.all(beside)
      await lockstep.close()
      metrics.close()
      stopLog?.()
      await pool.end()
    },
  }
}

/** With a token the page is not served: what it asks for would need it. The API is. */
async function showParts(
  { consolePort, headless, token }: ServicePlan,
  race: Show | undefined,
): Promise<AppParts['show']> {
  if (race !== undefined) {
    const pages = headless === true || token !== undefined ? undefined : await showPages(race)
    return { pages, api: showApi(race) }
  }
  return consolePort === undefined ? undefined : redirectToShow(consolePort)
}

function failed({ name }: System, say: (line: string) => void) {
  return (error: unknown): void => say(`${name}: what runs beside the requests has ended: ${String(error)}`)
}

async function finish(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeIdleConnections()
  // A connection that is kept alive becomes idle only when its request is answered.
  const sweep = setInterval(() => server.closeIdleConnections(), 50)
  const deadline = setTimeout(() => server.closeAllConnections(), DEADLINE_MS)
  await closed
  clearInterval(sweep)
  clearTimeout(deadline)
}
