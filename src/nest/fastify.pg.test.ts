import { FastifyAdapter } from '@nestjs/platform-fastify'
import type { FastifyReply } from 'fastify'
import { nestConforms } from './site.conformance.ts'

nestConforms<FastifyReply>({
  name: 'fastify',
  adapter: () => new FastifyAdapter(),
  status: (reply, code) => reply.code(code),
  append: (reply, name, value) => reply.header(name, value),
  remove: (reply, name) => reply.removeHeader(name),
})
