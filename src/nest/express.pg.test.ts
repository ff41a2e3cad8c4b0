import { ExpressAdapter, type NestExpressApplication } from '@nestjs/platform-express'
import type { Response } from 'express'
import { nestConforms } from './site.conformance.ts'

nestConforms<Response>({
  name: 'express',
  adapter: () => new ExpressAdapter(),
  prepare: (app) => void (app as NestExpressApplication).useBodyParser('json', { strict: false }),
  status: (response, code) => response.status(code),
  append: (response, name, value) => response.append(name, value),
  remove: (response, name) => response.removeHeader(name),
})
