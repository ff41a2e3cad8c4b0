import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { createAdaptorServer } from '@hono/node-server'
import { Hono } from 'hono'
import { builtPage } from '../../console/browser/builtPage.ts'
import { pages } from '../http/pages.ts'
import { PAGE, showApi, showPages } from '../show/routes.ts'
import { Show, type ShowOptions } from '../show/show.ts'

/** The start page and its API, without the desk around them. */
export interface RaceSite {
  readonly show: Show
  readonly origin: string
  /** What it has reported. */
  readonly said: readonly string[]
  close(): Promise<void>
}

export async function startRaceSite(options: ShowOptions = {}): Promise<RaceSite> {
  await builtPage(fileURLToPath(new URL('..', PAGE)))
  const said: string[] = []
  const show = await Show.prepare((line) => said.push(line), options)
  const app = new Hono()
  app.route('/', (await showPages(show)) as Hono)
  app.route('/', showApi(show))
  app.route('/', pages())
  const server = createAdaptorServer({ fetch: app.fetch }) as Server
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    show,
    said,
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      await show.close()
      server.close()
      server.closeAllConnections()
    },
  }
}
