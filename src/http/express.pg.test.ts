import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import express, { type Request, type Response } from 'express'
import { BEFORE, handlersConform, type Site } from './handlers.conformance.ts'
import { expressHandler } from './index.ts'

await handlersConform('express', (): Site<Request> => {
  const app = express()
  app.use(express.json({ strict: false }))
  app.use((_request, response, next) => {
    for (const [name, value] of BEFORE) response.append(name, value)
    next()
  })
  const see = (request: Request) => ({ tenant: request.get('x-tenant') ?? '', id: String(request.params.id) })
  return {
    see,
    add(path, guard, work) {
      app.post(
        `${path}/:id`,
        expressHandler(guard, async (request, response: Response, given) => {
          const {
            status,
            headers = {},
            json,
          } = await work(see(request), given, {
            status: (code) => response.status(code),
            append: (name, value) => response.append(name, value),
            remove: (name) => response.removeHeader(name),
          })
          if (status !== undefined) response.status(status)
          for (const [name, value] of Object.entries(headers)) response.append(name, value)
          response.json(json)
        }),
      )
    },
    async listen() {
      app.use((error: Error & { status?: number }, _request: Request, response: Response, _next: () => void) => {
        response.status(error.status ?? 500).end()
      })
      const server = createServer(app)
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
})
