/** One route, idempotent, on each framework and on plain fetch, on real sockets: `POST /transfers`. */
import { createServer, type Server } from 'node:http'
import { serve } from '@hono/node-server'
import express, { type Request as ExpressRequest } from 'express'
import Fastify, { type FastifyRequest } from 'fastify'
import { type Context, Hono } from 'hono'
import type { Transaction } from 'pg-lockstep'
import {
  expressHandler,
  fastifyHandler,
  fetchHandler,
  honoHandler,
  type HttpLockstep,
  idempotent,
  type TransactionalOptions,
} from 'pg-lockstep/http'
import { closed, urlOf } from './servers.ts'

export interface TransferServer {
  readonly name: 'express' | 'fastify' | 'hono' | 'fetch'
  readonly url: string
  close(): Promise<void>
}

/** A transfer as it is sent. */
export interface Transfer {
  readonly request: string
  readonly from: number
  readonly to: number
}

/** What the handlers do with it. The answer is JSON, with something in it that no second run would say. */
export type Book = (tx: Transaction, transfer: Transfer) => Promise<object>

const PATH = '/transfers'

/** Without authentication: all requests are of one principal. */
const OPTIONS = { scope: (): string => 'burst' }

type Wait = NonNullable<TransactionalOptions<unknown>['transaction']>

export async function startTransferServers(
  lockstep: HttpLockstep,
  book: Book,
  transaction: Wait = {},
): Promise<TransferServer[]> {
  const options = { ...OPTIONS, transaction }
  return Promise.all([
    startExpress(lockstep, options, book),
    startFastify(lockstep, options, book),
    startHono(lockstep, options, book),
    startFetch(lockstep, options, book),
  ])
}

type Options = TransactionalOptions<unknown>

async function startExpress(lockstep: HttpLockstep, options: Options, book: Book): Promise<TransferServer> {
  const app = express()
  app.use(express.json())
  app.post(
    PATH,
    expressHandler(idempotent<ExpressRequest>(lockstep, options), async (request, response: express.Response, tx) => {
      response.status(201).json(await book(tx, request.body as Transfer))
    }),
  )
  const server = createServer(app)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { name: 'express', url: urlOf(server) + PATH, close: () => closed(server) }
}

async function startFastify(lockstep: HttpLockstep, options: Options, book: Book): Promise<TransferServer> {
  const app = Fastify()
  app.post(
    PATH,
    fastifyHandler(idempotent<FastifyRequest>(lockstep, options), async (request, reply, tx) => {
      reply.code(201)
      return book(tx, request.body as Transfer)
    }),
  )
  await app.listen({ port: 0, host: '127.0.0.1' })
  return {
    name: 'fastify',
    url: urlOf(app.server) + PATH,
    async close() {
      app.server.closeAllConnections()
      await app.close()
    },
  }
}

async function startHono(lockstep: HttpLockstep, options: Options, book: Book): Promise<TransferServer> {
  const app = new Hono()
  app.post(
    PATH,
    honoHandler(idempotent<Context>(lockstep, options), async (context, tx) =>
      context.json(await book(tx, await context.req.json<Transfer>()), 201),
    ),
  )
  return { name: 'hono', ...(await served(app.fetch)) }
}

async function startFetch(lockstep: HttpLockstep, options: Options, book: Book): Promise<TransferServer> {
  const handle = fetchHandler(idempotent<Request>(lockstep, options), async (request, tx) =>
    Response.json(await book(tx, (await request.json()) as Transfer), { status: 201 }),
  )
  return { name: 'fetch', ...(await served((request: Request) => handle(request))) }
}

async function served(
  fetch: (request: Request) => Response | Promise<Response>,
): Promise<Omit<TransferServer, 'name'>> {
  const server = await new Promise<Server>((resolve) => {
    const started = serve({ fetch, port: 0, hostname: '127.0.0.1' }, () => resolve(started as Server))
  })
  return { url: urlOf(server) + PATH, close: () => closed(server) }
}
