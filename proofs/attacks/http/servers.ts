/**
 * One route, exclusive, on each framework, on real sockets: `POST /instances/:id/process/next`. And two requests for it at once, of
 * which the one that works does not end before the other one is answered.
 */
import { randomUUID } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import express, { type Request } from 'express'
import Fastify, { type FastifyRequest } from 'fastify'
import { type Context, Hono } from 'hono'
import { key, type Lease } from 'pg-lockstep'
import { exclusive, expressHandler, fastifyHandler, honoHandler, type HttpLockstep } from 'pg-lockstep/http'

export interface RunningServer {
  readonly name: 'express' | 'fastify' | 'hono'
  readonly url: string
  close(): Promise<void>
}

/** What came back of one of two requests. */
export interface Answered {
  readonly status: number
  readonly contentType: string | null
  readonly retryAfter: string | null
  readonly body: string
}

/** Where the worker of a try waits, and how many work in it. */
interface Gate {
  workers: number
  readonly opened: Promise<void>
  open(): void
}

/** By the name of the try, which comes in a header. */
const gates = new Map<string, Gate>()
const TRY = 'x-try'

function gate(): Gate {
  let open = (): void => undefined
  const opened = new Promise<void>((resolve) => (open = resolve))
  return { workers: 0, opened, open }
}

/** Works until the other request is answered; or until the other one works too, which is what must not be. */
export async function workAtGate(name: string | undefined, lease: Lease): Promise<{ done: string; fence: string }> {
  const here = gates.get(name ?? '')
  if (here !== undefined) {
    if (++here.workers > 1) here.open()
    await here.opened
  }
  return { done: lease.key, fence: String(lease.fence) }
}

const PATH = '/instances/:id/process/next'

/** The three servers on free ports of the loopback. */
export async function startServers(lockstep: HttpLockstep): Promise<RunningServer[]> {
  return Promise.all([startExpress(lockstep), startFastify(lockstep), startHono(lockstep)])
}

async function startExpress(lockstep: HttpLockstep): Promise<RunningServer> {
  const guard = exclusive(lockstep, { key: (request: Request) => key`Instance:${String(request.params.id)}` })
  const app = express()
  app.post(
    PATH,
    expressHandler(guard, async (request, response: express.Response, lease) => {
      response.json(await workAtGate(request.get(TRY), lease))
    }),
  )
  const server = createServer(app)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { name: 'express', url: urlOf(server), close: () => closed(server) }
}

async function startFastify(lockstep: HttpLockstep): Promise<RunningServer> {
  type InstanceRequest = FastifyRequest<{ Params: { id: string } }>
  const guard = exclusive(lockstep, { key: (request: InstanceRequest) => key`Instance:${request.params.id}` })
  const app = Fastify()
  app.post(
    PATH,
    fastifyHandler(guard, (request, _reply, lease) => workAtGate(request.headers[TRY] as string | undefined, lease)),
  )
  await app.listen({ port: 0, host: '127.0.0.1' })
  return {
    name: 'fastify',
    url: urlOf(app.server),
    async close() {
      app.server.closeAllConnections()
      await app.close()
    },
  }
}

async function startHono(lockstep: HttpLockstep): Promise<RunningServer> {
  const guard = exclusive(lockstep, { key: (context: Context) => key`Instance:${context.req.param('id') ?? ''}` })
  const app = new Hono()
  app.post(
    PATH,
    honoHandler(guard, async (context, lease) => context.json(await workAtGate(context.req.header(TRY), lease))),
  )
  const server = await new Promise<Server>((resolve) => {
    const started = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, () => resolve(started as Server))
  })
  return { name: 'hono', url: urlOf(server), close: () => closed(server) }
}

export function urlOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

export function closed(server: Server): Promise<void> {
  server.closeAllConnections()
  return new Promise((resolve, reject) => server.close((error) => (error === undefined ? resolve() : reject(error))))
}

/** Two POSTs at once. Both answers, in the order of asking. `ask` gets the name of the try, by which the worker knows its gate. */
export async function simultaneous(
  ask: (name: string) => Promise<Response>,
  askOther = ask,
): Promise<readonly [Answered, Answered]> {
  const name = randomUUID()
  const here = gate()
  gates.set(name, here)
  try {
    const read = async (response: Response): Promise<Answered> => ({
      status: response.status,
      contentType: response.headers.get('content-type'),
      retryAfter: response.headers.get('retry-after'),
      body: await response.text(),
    })
    const asked = [ask(name).then(read), askOther(name).then(read)] as const
    await Promise.race(asked)
    here.open()
    return await Promise.all(asked)
  } finally {
    here.open()
    gates.delete(name)
  }
}

/** Asks one of the servers. */
export function askAt(url: string): (name: string) => Promise<Response> {
  return (name) => fetch(`${url}/instances/42/process/next`, { method: 'POST', headers: { [TRY]: name } })
}
