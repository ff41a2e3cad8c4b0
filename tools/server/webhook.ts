import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import { freePort } from './freePort.ts'

/** A request as it came. */
export interface TakenRequest {
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

/** A receiver of webhooks of our own, on 127.0.0.1: what it has taken outlives that it is killed. */
export interface WebhookReceiverServer {
  readonly port: number
  readonly taken: readonly TakenRequest[]
  /** Closes every connection and the port at once: no request is answered. */
  kill(): Promise<void>
  start(): Promise<void>
}

/** `beforeAnswer` delays the answer to what was taken: a receiver that is slow, or never answers. */
export async function startWebhookReceiver(
  beforeAnswer?: (request: TakenRequest) => Promise<void>,
): Promise<WebhookReceiverServer> {
  const port = await freePort()
  const taken: TakenRequest[] = []
  let server: Server | undefined
  const start = async (): Promise<void> => {
    const starting = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('end', () => {
        const came: TakenRequest = { headers: request.headers, body: Buffer.concat(chunks) }
        if (request.method === 'POST') taken.push(came)
        if (beforeAnswer === undefined) response.writeHead(204).end()
        else void beforeAnswer(came).then(() => response.writeHead(204).end())
      })
    })
    server = starting
    starting.listen(port, '127.0.0.1')
    await once(starting, 'listening')
  }
  await start()
  return {
    port,
    taken,
    start,
    async kill() {
      if (server?.listening !== true) return
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}
