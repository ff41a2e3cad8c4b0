import { createRoute, OpenAPIHono } from '@hono/zod-openapi'
import type { Context, Hono, MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { requestId, type RequestIdVariables } from 'hono/request-id'
import { Registry } from 'prom-client'
import type { Desk, System } from '../desk.ts'
import { bearer } from './bearer.ts'
import { Check, Checked, checkPage } from './check.ts'
import { internal, problemOf } from './errors.ts'
import type { Metrics } from './metrics.ts'
import { wantsPage } from './page.ts'
import { pages } from './pages.ts'
import { PROBLEM_TYPE, ProblemError } from './problem.ts'
import { PROCESS_HEADER } from './processHeader.ts'
import { answers } from './routes.ts'
import { onlyThisMachine } from './sameSite.ts'

type DeskEnv = { Variables: RequestIdVariables }

/** What an app needs beside the systems. */
export interface AppParts {
  readonly systems: readonly System[]
  readonly metrics: Pick<Metrics, 'measure'>
  /** What /metrics answers. */
  readonly metricsText: () => Promise<string>
  /** Why requests should go elsewhere; undefined where they should not. */
  readonly notReady: () => Promise<string | undefined>
  /** What has to be shown in the header Authorization, as a bearer. */
  readonly token?: string | undefined
  /** Whether every request is written to the log, or only those that failed here. */
  readonly log: boolean
  /** The race of the start page: its page, which is open, and its API. */
  readonly show?: { readonly pages: Hono | undefined; readonly api: Hono } | undefined
  /** What answers below /console. */
  readonly console?: { fetch(request: Request): Response | Promise<Response> } | undefined
}

const checkRoute = createRoute({
  method: 'get',
  path: '/check',
  tags: ['check'],
  summary: 'Whether every invariant of every system holds, now; a page for browsers',
  responses: answers({ 200: ['What was found.', Checked] }, [503]),
})

const MAX_BODY_BYTES = 64 * 1024

/** The desk as a web application: the five systems and what every service has around them. */
export function createApp(desk: Desk, parts: AppParts): OpenAPIHono<DeskEnv> {
  const app = new OpenAPIHono<DeskEnv>()
  app.use(requestId())
  app.use(nameAnswer)
  app.use(logRequests(desk, parts.log))
  app.use(parts.metrics.measure)
  app.use(completeProblems)
  app.use(
    bodyLimit({
      maxSize: MAX_BODY_BYTES,
      onError: (c) => {
        const detail = `A body may have ${MAX_BODY_BYTES} bytes here.`
        return new ProblemError('request-too-large', detail).answer(c)
      },
    }),
  )
  addState(app, desk, parts)
  const { console, token, metricsText, systems, show } = parts
  if (console !== undefined) app.mount('/console', (request) => console.fetch(request), { replaceRequest: false })
  if (show?.pages !== undefined) app.route('/', show.pages)
  app.route('/', pages())
  addDocument(app, parts)
  // From here on: what was registered before it is open, and shows no data.
  app.use(token === undefined ? onlyThisMachine : bearer(token))
  app.get('/metrics', async (c) =>
    c.body(await metricsText(), 200, { 'content-type': Registry.PROMETHEUS_CONTENT_TYPE }),
  )
  if (show !== undefined) app.route('/', show.api)
  const check = new Check(desk, systems)
  app.openapi(checkRoute, async (c) => {
    const checked = await check.now()
    return wantsPage(c) ? c.html(checkPage(checked)) : c.json(checked, 200)
  })
  for (const system of systems) app.route('/', system.routes(desk))
  app.notFound((c) => new ProblemError('not-found', `There is nothing at ${c.req.path}.`).answer(c))
  app.onError((error, c) => {
    const problem = problemOf(error)
    if (problem === undefined)
      desk.say(`${c.get('requestId')} ${c.req.method} ${c.req.path}: ${error.stack ?? error.message}`)
    return (problem ?? internal()).answer(c)
  })
  return app
}

/** It is made when it is asked for, of all routes that there are then. */
function addDocument(app: OpenAPIHono<DeskEnv>, { systems, token }: AppParts): void {
  if (token !== undefined) {
    app.openAPIRegistry.registerComponent('securitySchemes', 'token', { type: 'http', scheme: 'bearer' })
  }
  app.doc('/openapi.json', {
    openapi: '3.0.3',
    info: {
      title: 'The desk',
      version: '1.0.0',
      description: 'Five systems that go wrong under concurrency, and do not here. Amounts are cents.',
    },
    tags: [...systems.map(({ name }) => ({ name })), { name: 'check' }],
    ...(token !== undefined && { security: [{ token: [] }] }),
  })
}

/** Whether this process is alive, and whether it is ready for requests. Open to all, for load balancers. */
function addState(app: OpenAPIHono<DeskEnv>, { pool, processName }: Desk, { notReady }: AppParts): void {
  app.get('/health', (c) => {
    const { totalCount: total, idleCount: idle, waitingCount: waiting } = pool
    return c.json({ status: 'alive', process: processName, pid: process.pid, pool: { total, idle, waiting } })
  })
  app.get('/ready', async (c) => {
    const reason = await notReady()
    if (reason !== undefined) return new ProblemError('not-ready', reason, { retryAfterSeconds: 1 }).answer(c)
    return c.json({ status: 'ready', process: processName })
  })
}

/** Afterwards: what is set before stands only in answers that are made through the context, and a stored answer may have another id. */
const nameAnswer: MiddlewareHandler<DeskEnv> = async (c, next) => {
  await next()
  c.header('x-request-id', c.get('requestId'))
  c.header(PROCESS_HEADER, String(process.pid))
}

/** A line for each request, with its id. */
function logRequests(desk: Desk, all: boolean): MiddlewareHandler<DeskEnv> {
  return async (c, next) => {
    const begun = performance.now()
    await next()
    const { status } = c.res
    if (all || status >= 500) {
      desk.say(
        `${c.get('requestId')} ${c.req.method} ${c.req.path} ${status} ${Math.round(performance.now() - begun)} ms`,
      )
    }
  }
}

/** The library's own problems say what happened; here every problem also has a code, and says of what it is. */
async function completeProblems(c: Context, next: () => Promise<void>): Promise<void> {
  await next()
  if (c.res.headers.get('content-type') !== PROBLEM_TYPE) return
  const given = (await c.res.clone().json()) as { readonly type: string; readonly code?: string }
  if (given.code !== undefined) return
  const complete = { ...given, code: given.type.split(':').at(-1), instance: c.req.path }
  c.res = new Response(JSON.stringify(complete), c.res)
}
