import 'reflect-metadata'
import type { IncomingHttpHeaders } from 'node:http'
import {
  Controller,
  createParamDecorator,
  HttpCode,
  type INestApplication,
  Module,
  Post,
  Req,
  Res,
  type Type,
} from '@nestjs/common'
import { type AbstractHttpAdapter, NestFactory } from '@nestjs/core'
import { handlersConform, type Site } from '../http/handlers.conformance.ts'
import type { Guard } from '../http/index.ts'
import { Lockstep } from '../index.ts'
import { guarded } from './decorators.ts'
import { givenTo } from './parameters.ts'

/** What the tests read of a request of Express and of Fastify. */
export interface NestRequest {
  readonly method: string
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly params: Readonly<Record<string, string>>
}

/** What a platform does in its own way. */
export interface Platform<Response> {
  readonly name: string
  adapter(): AbstractHttpAdapter
  /** Sets the headers `BEFORE` in front of all handlers. */
  prepare(app: INestApplication): void
  status(response: Response, code: number): void
  append(response: Response, name: string, value: string): void
  remove(response: Response, name: string): void
}

const Given = createParamDecorator((_data: unknown, context) => givenTo(context))

/** The suite of all frameworks, on Nest. */
export async function nestConforms<Response extends object>(platform: Platform<Response>): Promise<void> {
  await handlersConform(`nest on ${platform.name}`, () => nestSite(platform), ['pg'])
}

function nestSite<Response extends object>(platform: Platform<Response>): Site<NestRequest> {
  const controllers: Type[] = []
  const see = ({ headers, params }: NestRequest) => ({ tenant: String(headers['x-tenant']), id: String(params['id']) })
  return {
    see,
    add(path, guard, work) {
      class Route {
        async handle(request: NestRequest, response: Response, given: never): Promise<unknown> {
          const answer = await work(see(request), given, {
            status: (code) => platform.status(response, code),
            append: (name, value) => platform.append(response, name, value),
            remove: (name) => platform.remove(response, name),
          })
          if (answer.status !== undefined) platform.status(response, answer.status)
          for (const [name, value] of Object.entries(answer.headers ?? {})) platform.append(response, name, value)
          return answer.json
        }
      }
      const handle = Object.getOwnPropertyDescriptor(Route.prototype, 'handle') as PropertyDescriptor
      for (const decorator of [Post(':id'), HttpCode(200), guarded(() => guard as Guard<NestRequest, unknown>)]) {
        decorator(Route.prototype, 'handle', handle)
      }
      Req()(Route.prototype, 'handle', 0)
      Res({ passthrough: true })(Route.prototype, 'handle', 1)
      Given()(Route.prototype, 'handle', 2)
      Controller(path)(Route)
      controllers.push(Route)
    },
    async listen() {
      class AppModule {}
      // The guards of the suite bring their own.
      const provider = { provide: Lockstep, useValue: undefined }
      Module({ controllers, providers: [provider] })(AppModule)
      const app = await NestFactory.create(AppModule, platform.adapter(), { logger: false })
      platform.prepare(app)
      await app.listen(0, '127.0.0.1')
      return {
        url: await app.getUrl(),
        async close() {
          ;(app.getHttpServer() as { closeAllConnections(): void }).closeAllConnections()
          await app.close()
        },
      }
    },
  }
}
