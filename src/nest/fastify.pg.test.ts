import { FastifyAdapter } from '@nestjs/platform-fastify'
import type { FastifyReply } from 'fastify'
import { BEFORE } from '../http/handlers.conformance.ts'
import { nestConforms } from './site.conformance.ts'

await nestConforms<FastifyReply>({
  name: 'fastify',
  adapter: () => new FastifyAdapter(),
  prepare(app) {
    ;(app.getHttpAdapter() as FastifyAdapter).getInstance().addHook('onRequest', async (_request, reply) => {
      for (const [name, value] of BEFORE) reply.header(name, value)
    })
  },
  status: (reply, code) => void reply.code(code),
  append: (reply, name, value) => void reply.header(name, value),
  remove: (reply, name) => void reply.removeHeader(name),
})
