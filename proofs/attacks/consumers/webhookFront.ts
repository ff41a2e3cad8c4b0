import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import { freePort } from '../../../tools/server/freePort.ts'

/** What stands in front of receivers: it passes each request to any of them, as a balancer does. */
export interface WebhookFront {
  readonly address: string
  /** Closes every connection and the port at once. */
  kill(): Promise<void>
  start(): Promise<void>
  stop(): Promise<void>
}

/** `next`: the port of a receiver, if there is one. */
export async function startWebhookFront(next: () => number | undefined): Promise<WebhookFront> {
  const port = await freePort()
  let server: Server | undefined
  const start = async (): Promise<void> => {
    server = createServer((from, to) => passOn(from, to, next())).listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  const kill = async (): Promise<void> => {
    if (server?.listening !== true) return
    const closed = once(server, 'close')
    server.close()
    server.closeAllConnections()
    await closed
  }
  await start()
  return { address: `127.0.0.1:${port}`, start, kill, stop: kill }
}

function passOn(from: IncomingMessage, to: ServerResponse, port: number | undefined): void {
  const unavailable = (): void => {
    if (to.headersSent) to.destroy()
    else to.writeHead(502).end()
  }
  if (port === undefined) return unavailable()
  const { method, url, headers } = from
  const onward = request({ host: '127.0.0.1', port, method, path: url, headers }, (answer) => {
    to.writeHead(answer.statusCode ?? 502, answer.headers)
    answer.on('error', unavailable).pipe(to)
  })
  onward.on('error', unavailable)
  // Who sent it has gone: the receiver may have it all the same.
  to.on('close', () => onward.destroy())
  from.on('error', unavailable).pipe(onward)
  return undefined
}
