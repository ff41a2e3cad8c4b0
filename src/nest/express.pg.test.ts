import { ExpressAdapter, type NestExpressApplication } from '@nestjs/platform-express'
import type { Request, Response } from 'express'
import { BEFORE } from '../http/handlers.conformance.ts'
import { nestConforms } from './site.conformance.ts'

await nestConforms<Response>({
  name: 'express',
  adapter: () => new ExpressAdapter(),
  prepare(app) {
    ;(app as NestExpressApplication).useBodyParser('json', { strict: false })
    app.use((_request: Request, response: Response, next: () => void) => {
      for (const [name, value] of BEFORE) response.append(name, value)
      next()
    })
  },
  status: (response, code) => response.status(code),
  append: (response, name, value) => response.append(name, value),
  remove: (response, name) => response.removeHeader(name),
})
