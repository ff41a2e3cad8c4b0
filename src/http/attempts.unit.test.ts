import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import { serve } from '@hono/node-server'
import type { AddressInfo, Server } from 'node:net'
import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { type Context, Hono } from 'hono'
import { setCookie } from 'hono/cookie'
import { cors } from 'hono/cors'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { type Answer, fastifyHandler, fetchHandler, type Guard, honoHandler } from './index.ts'

/** A guard without a database, that runs the handler twice: nothing of the first attempt may be in the answer, or in what is stored. */

interface Outcome {
  answer?: Answer | undefined
}

function twice<Request>(outcome: Outcome = {}): Guard<Request, number> {
  return {
    wholeUpTo: 1000,
    async handle(_incoming, work) {
      await work(1)
      outcome.answer = await (await work(2)).whole()
      return 'own'
    },
  }
}

function storedHeader({ answer }: Outcome, name: string): string | undefined {
  return answer?.headers.find(([each]) => each === name)?.[1]
}

const cleanUp = cleanUps()

describe('Hono', () => {
  type Before = (app: Hono) => void
  const throughHeader: Before = (app) =>
    app.use(async (c, next) => {
      c.header('x-before', 'yes')
      await next()
    })
  const throughResponse: Before = (app) =>
    app.use(async (c, next) => {
      c.res.headers.set('x-before', 'yes')
      await next()
    })
  const both: Before = (app) => {
    app.use(cors({ origin: 'https://example.org', credentials: true }))
    throughHeader(app)
  }

  async function post(before: Before, work: (c: Context, attempt: number) => Response, outcome: Outcome = {}) {
    const app = new Hono()
    before(app)
    app.post(
      '/',
      honoHandler(twice<Context>(outcome), (c, attempt) => work(c, attempt)),
    )
    const server = await new Promise<Server>((resolve) => {
      const started = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, () => resolve(started))
    })
    cleanUp(() => server.close())
    const { port } = server.address() as AddressInfo
    return fetch(`http://127.0.0.1:${port}`, { method: 'POST', headers: { connection: 'close' } })
  }

  const MIDDLEWARE = [
    ['c.header()', throughHeader],
    ['c.res', throughResponse],
    ['c.res, then c.header()', both],
  ] as const
  const WAYS: readonly (readonly [string, (c: Context) => Response])[] = [
    ['c.json() with headers', (c) => c.json('first', 202, { location: '/first', 'x-attempt': 'first' })],
    [
      'c.status(), c.header() and cookies',
      (c) => {
        c.status(202)
        c.header('location', '/first')
        c.header('x-before', undefined)
        setCookie(c, 'one', '1')
        setCookie(c, 'two', '2')
        return c.body('first')
      },
    ],
    ['c.redirect()', (c) => c.redirect('/first')],
    [
      'c.res',
      (c) => {
        c.res = new Response('first', { status: 202, headers: { location: '/first' } })
        return c.res
      },
    ],
    [
      'headers of c.res',
      (c) => {
        c.res.headers.set('location', '/first')
        c.res.headers.append('set-cookie', 'one=1')
        return new Response('first')
      },
    ],
  ]

  describe.each(MIDDLEWARE)('after middleware that used %s', (_name, before) => {
    test.each(WAYS)('leaves nothing of an attempt that answered by %s', async (_way, first) => {
      const outcome: Outcome = {}
      const response = await post(before, (c, attempt) => (attempt === 1 ? first(c) : c.json('second')), outcome)
      expect([response.status, await response.json()]).toEqual([200, 'second'])
      expect(response.headers.get('location')).toBeNull()
      expect(response.headers.get('x-attempt')).toBeNull()
      expect(response.headers.getSetCookie()).toEqual([])
      expect(response.headers.get('x-before')).toBe('yes')
      expect(outcome.answer?.status).toBe(200)
      expect(storedHeader(outcome, 'location')).toBeUndefined()
      expect(storedHeader(outcome, 'content-type')).toBe('application/json')
    })
  })

  test('stores what Hono adds to a response after the handler', async () => {
    const outcome: Outcome = {}
    const response = await post(
      throughResponse,
      (c, attempt) => {
        c.header('location', `/${attempt}`)
        return new Response('done', { status: 201 })
      },
      outcome,
    )
    expect([response.status, response.headers.get('location'), await response.text()]).toEqual([201, '/2', 'done'])
    expect(storedHeader(outcome, 'location')).toBe('/2')
  })
})

describe('Fastify', () => {
  const COOKIES = Symbol('cookies')
  type Reply = FastifyReply & { [COOKIES]: Map<string, string> }

  async function post(work: (reply: Reply, attempt: number) => unknown, outcome: Outcome = {}): Promise<Response> {
    const app = Fastify()
    // As @fastify/cookie keeps them until they are sent.
    app.decorateReply(COOKIES, null as never)
    app.addHook('onRequest', async (_request, reply) => {
      ;(reply as Reply)[COOKIES] = new Map([['visit', '1']])
      reply.raw.setHeader('x-raw', 'before')
      reply.header('x-before', 'yes')
    })
    app.addHook('onSend', async (_request, reply) => {
      reply.header(
        'set-cookie',
        [...(reply as Reply)[COOKIES]].map(([name, value]) => `${name}=${value}`),
      )
    })
    app.post(
      '/',
      fastifyHandler(twice<FastifyRequest>(outcome), async (_request, reply: FastifyReply, attempt) =>
        work(reply as Reply, attempt),
      ),
    )
    cleanUp(() => app.close())
    const url = await app.listen({ port: 0, host: '127.0.0.1' })
    return fetch(url, { method: 'POST', headers: { connection: 'close' } })
  }

  test('leaves no status, header, cookie, serializer or listener of an attempt', async () => {
    const heard: number[] = []
    const outcome: Outcome = {}
    const response = await post((reply, attempt) => {
      reply.raw.on('finish', () => heard.push(attempt))
      if (attempt === 2) return { attempt }
      reply.code(202).header('location', '/first').type('text/x-first')
      reply.serializer(() => 'first')
      reply[COOKIES].set('first', '1')
      reply.raw.setHeader('x-raw', 'first')
      reply.raw.setHeader('x-first', 'yes')
      reply.removeHeader('x-before')
      return reply.send({ attempt })
    }, outcome)
    expect([response.status, await response.json()]).toEqual([200, { attempt: 2 }])
    expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8')
    for (const name of ['location', 'x-first']) expect(response.headers.get(name)).toBeNull()
    expect(response.headers.get('x-raw')).toBe('before')
    expect(response.headers.get('x-before')).toBe('yes')
    expect(response.headers.getSetCookie()).toEqual(['visit=1'])
    expect(storedHeader(outcome, 'location')).toBeUndefined()
    await expect.poll(() => heard).toEqual([2])
  })

  test('sends cookies that hooks have set once', async () => {
    const response = await post((reply, attempt) => {
      reply.header('set-cookie', `attempt=${attempt}`)
      return 'done'
    })
    expect(response.headers.getSetCookie()).toEqual(['attempt=2', 'visit=1'])
  })
})

describe('fetch', () => {
  test('passes the body and the other arguments of the server to each attempt', async () => {
    const outcome: Outcome = {}
    const context = { params: Promise.resolve({ id: '42' }) }
    const seen: unknown[] = []
    const handle = fetchHandler(
      twice<Request>(outcome),
      async (request, attempt, { params }: typeof context, extra: number) => {
        seen.push([attempt, await request.text(), (await params).id, extra])
        return new Response(null, {
          status: attempt === 1 ? 202 : 204,
          headers: attempt === 1 ? { location: '/1' } : {},
        })
      },
    )
    expectTypeOf(handle).parameters.toEqualTypeOf<[Request, typeof context, number]>()
    const response = await handle(new Request('http://localhost/', { method: 'POST', body: 'body' }), context, 7)
    expect(seen).toEqual([
      [1, 'body', '42', 7],
      [2, 'body', '42', 7],
    ])
    expect([response.status, response.headers.get('location')]).toEqual([204, null])
    expect(outcome.answer).toMatchObject({ status: 204, headers: [] })
  })

  test('accepts a handler of the request alone', () => {
    const handle = fetchHandler(twice<Request>(), () => new Response('ok'))
    expectTypeOf(handle).parameters.toEqualTypeOf<[Request]>()
  })
})
