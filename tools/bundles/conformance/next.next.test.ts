/** The suite of the HTTP handlers on a server of Next.js, built by the bundler of `LOCKSTEP_COMPILER`. Run by `npm run bundles`. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { afterAll } from 'vitest'
import { BEFORE, handlersConform, type Site } from '../../../src/http/handlers.conformance.ts'
import type { Guard } from '../../../src/http/index.ts'
import { buildConformance } from './buildConformance.ts'

interface NextServer {
  prepare(): Promise<void>
  getRequestHandler(): (request: IncomingMessage, response: ServerResponse) => Promise<void>
  close(): Promise<void>
}

interface Route {
  readonly guard: Guard<never, unknown>
  readonly work: unknown
}

const sites = new Map<string, Map<string, Route>>()
Object.assign(globalThis, { lockstepSites: sites })

const project = await buildConformance(process.env['LOCKSTEP_COMPILER'] === 'webpack' ? 'webpack' : 'turbopack')
const load = createRequire(`${project.directory}/package.json`)
const makeNext = load('next') as (options: object) => NextServer
const next = makeNext({ dev: false, dir: project.directory, quiet: true })
await next.prepare()
const handle = next.getRequestHandler()
afterAll(async () => {
  await next.close()
  await project[Symbol.asyncDispose]()
})

await handlersConform(
  `next, ${process.env['LOCKSTEP_COMPILER']}`,
  (): Site<Request> => {
    const name = `site-${sites.size}`
    const routes = new Map<string, Route>()
    sites.set(name, routes)
    return {
      see: (request) => ({
        tenant: request.headers.get('x-tenant') ?? '',
        id: new URL(request.url).pathname.split('/').at(-1) ?? '',
      }),
      add: (path, guard, work) => void routes.set(path, { guard, work }),
      async listen() {
        // In front of Next.js, as a proxy or a middleware would be.
        const server = createServer((request, response) => {
          request.headers['x-site'] = name
          for (const [header, value] of BEFORE) response.appendHeader(header, value)
          void handle(request, response)
        })
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
