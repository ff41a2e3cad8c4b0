import Fastify, { type FastifyRequest } from 'fastify'
import { BEFORE, handlersConform, type Site } from './handlers.conformance.ts'
import { fastifyHandler } from './index.ts'

type ByIdRequest = FastifyRequest<{ Params: { id: string } }>

await handlersConform('fastify', (): Site<ByIdRequest> => {
  const app = Fastify()
  app.addHook('onRequest', async (_request, reply) => {
    for (const [name, value] of BEFORE) reply.header(name, value)
  })
  const see = (request: ByIdRequest) => ({ tenant: String(request.headers['x-tenant']), id: request.params.id })
  return {
    see,
    add(path, guard, work) {
      app.post(
        `${path}/:id`,
        fastifyHandler(guard, async (request, reply, given) => {
          const {
            status,
            headers = {},
            json,
          } = await work(see(request), given, {
            status: (code) => reply.code(code),
            append: (name, value) => reply.header(name, value),
            remove: (name) => reply.removeHeader(name),
          })
          if (status !== undefined) reply.code(status)
          for (const [name, value] of Object.entries(headers)) reply.header(name, value)
          // Both ways that Fastify knows.
          if (status !== undefined) return reply.send(json)
          return json
        }),
      )
    },
    async listen() {
      const url = await app.listen({ port: 0, host: '127.0.0.1' })
      return {
        url,
        async close() {
          app.server.closeAllConnections()
          await app.close()
        },
      }
    },
  }
})
