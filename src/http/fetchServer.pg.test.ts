import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { BEFORE, handlersConform, type Site } from './handlers.conformance.ts'
import { fetchHandler } from './index.ts'

/** What Next.js passes beside the request. */
interface Context {
  readonly params: Promise<{ readonly id: string }>
}

// On a plain server. Next.js itself: `npm run bundles`.
await handlersConform(
  'fetch',
  (): Site<Request> => {
    const routes = new Map<string, (request: Request, context: Context) => Promise<Response>>()
    const see = (request: Request, id = new URL(request.url).pathname.split('/').at(-1) ?? '') => ({
      tenant: request.headers.get('x-tenant') ?? '',
      id,
    })
    return {
      see,
      add(path, guard, work) {
        const handle = fetchHandler(guard, async (request, given, { params }: Context) => {
          const headers = new Headers()
          let status = 200
          const answer = await work(see(request, (await params).id), given, {
            status: (code) => (status = code),
            append: (name, value) => headers.append(name, value),
            remove: (name) => headers.delete(name),
          })
          for (const [name, value] of Object.entries(answer.headers ?? {})) headers.append(name, value)
          return Response.json(answer.json, { status: answer.status ?? status, headers })
        })
        routes.set(path, handle)
      },
      async listen() {
        const listener = getRequestListener(async (request) => {
          const [, path, id = ''] = new URL(request.url).pathname.split('/')
          const answered = await routes
            .get(`/${path}`)?.(request, { params: Promise.resolve({ id }) })
            .catch(() => new Response(null, { status: 500 }))
          const headers = new Headers(BEFORE.map(([name, value]): [string, string] => [name, value]))
          answered?.headers.forEach((value, name) =>
            name === 'set-cookie' ? headers.append(name, value) : headers.set(name, value),
          )
          return new Response(answered?.body ?? null, { status: answered?.status ?? 404, headers })
        })
        const server = createServer((request, response) => void listener(request, response))
        await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
        return {
          url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
          async close() {
            server.closeAllConnections()
            await new Promise((resolve) => server.close(resolve))
          },
        }
      },
    }
  },
  ['pg'],
)
