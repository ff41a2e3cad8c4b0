import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import type { StatusCode } from 'hono/utils/http-status'
import { BEFORE, handlersConform, type Site } from './handlers.conformance.ts'
import { honoHandler } from './index.ts'

await handlersConform('hono', (): Site<Context> => {
  const app = new Hono()
  app.onError((_error, context) => context.text('', 500))
  app.use(async (context, next) => {
    for (const [name, value] of BEFORE) context.header(name, value, { append: true })
    await next()
  })
  const see = (context: Context) => ({
    tenant: context.req.header('x-tenant') ?? '',
    id: context.req.param('id') ?? '',
  })
  return {
    see,
    add(path, guard, work) {
      app.post(
        `${path}/:id`,
        honoHandler(guard, async (context, given) => {
          const {
            status,
            headers = {},
            json,
          } = await work(see(context), given, {
            status: (code) => context.status(code as StatusCode),
            append: (name, value) => context.header(name, value, { append: true }),
            remove: (name) => context.header(name, undefined),
          })
          if (status !== undefined) context.status(status as StatusCode)
          for (const [name, value] of Object.entries(headers)) context.header(name, value, { append: true })
          return context.json(json)
        }),
      )
    },
    async listen() {
      const server = await new Promise<Server>((resolve) => {
        const started = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, () => resolve(started as Server))
      })
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
