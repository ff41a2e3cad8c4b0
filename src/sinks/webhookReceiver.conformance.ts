import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'
import type { Delivery, OutboxEvent, Sink } from '../outbox/index.ts'
import { contextOf, eventOf } from './sinkBench.conformance.ts'
import { type WebhookOptions, webhookSink } from './webhook.ts'

export const newSecret = (): string => `whsec_${randomBytes(32).toString('base64')}`
export const SECRET = newSecret()

export interface Taken {
  readonly path: string
  readonly headers: Record<string, string>
  readonly body: Buffer
}
type Answer = (request: Taken, response: ServerResponse, message: IncomingMessage) => void

/** A receiver that answers as the test says. Closed after the test. */
export async function receiver(answer: Answer = (_, response) => void response.writeHead(204).end()): Promise<{
  readonly url: string
  readonly server: Server
  readonly taken: Taken[]
  readonly sockets: () => number
}> {
  const taken: Taken[] = []
  let sockets = 0
  const server = createServer((message, response) => {
    const chunks: Buffer[] = []
    message.on('data', (chunk: Buffer) => chunks.push(chunk))
    message.on('end', () => {
      const request = {
        path: message.url ?? '',
        headers: message.headers as Record<string, string>,
        body: Buffer.concat(chunks),
      }
      taken.push(request)
      answer(request, response, message)
    })
  })
  server.on('connection', () => sockets++)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.close()
    server.closeAllConnections()
    await once(server, 'close')
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    server,
    taken,
    sockets: () => sockets,
  }
}

export function sinkTo(url: WebhookOptions['url'], options: Partial<WebhookOptions> = {}): Sink {
  const sink = webhookSink({ url, secret: SECRET, timeoutMs: 2000, ...options })
  onTestFinished(async () => sink.close?.())
  return sink
}
export const send = (sink: Sink, ...events: OutboxEvent[]): Promise<readonly Delivery[]> =>
  sink.send(events, contextOf())
export const sendOne = async (sink: Sink, event = eventOf('t', 'k', 1)): Promise<Delivery> =>
  (await send(sink, event))[0] as Delivery
export const reasonOf = (answer: Delivery): string =>
  typeof answer === 'string' ? answer : String(Object.values(answer)[0])
