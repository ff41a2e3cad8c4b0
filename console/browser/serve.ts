import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type ConsoleLockstep, type ConsoleOptions, createConsole } from 'pg-lockstep/console'

export interface Serving {
  readonly url: string
  readonly port: number
  close(): Promise<void>
}

/** A console on loopback, as `lockstep console` starts it. */
export async function serve(lockstep: ConsoleLockstep, options: ConsoleOptions = {}, port = 0): Promise<Serving> {
  const site = createConsole(lockstep, options)
  const server = createServer(site.listener)
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${address.port}/`,
    port: address.port,
    async close() {
      await site.close()
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
