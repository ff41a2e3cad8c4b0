import { createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import type { OutboxEvent } from 'pg-lockstep'
import { messageHeaders } from 'pg-lockstep/sinks'
import { verifyWebhook, webhookSink } from 'pg-lockstep/webhook'
import { startWebhookReceiver } from '../server/webhook.ts'
import { type Broker, cloudEventsOf, streamsOf } from './broker.ts'

const SECRET = `whsec_${randomBytes(32).toString('base64')}`
/** What was taken is verified when it is looked at. */
const LONG_MS = 24 * 60 * 60 * 1000
const CONCURRENCY = 8

/** A receiver of webhooks, in this process. */
export const webhook: Broker = {
  name: 'webhook',
  async run() {
    const server = await startWebhookReceiver()
    return {
      address: `127.0.0.1:${server.port}`,
      kill: () => server.kill(),
      start: () => server.start(),
      received: (topic) =>
        Promise.resolve(
          server.taken
            .map(({ headers, body }) => verifyWebhook(headers, body, SECRET, { toleranceMs: LONG_MS }))
            .filter((event) => event.topic === topic),
        ),
      headers: (topic) =>
        Promise.resolve(
          server.taken
            .map(({ headers }) => headers as Record<string, string>)
            .filter((headers) => headers['lockstep-topic'] === topic),
        ),
      stop: () => server.kill(),
    }
  },
  connect(address, options) {
    const { timeoutMs } = options
    const url = `http://${address}/events`
    const sink = webhookSink({ url, secret: SECRET, concurrency: CONCURRENCY, timeoutMs, ...cloudEventsOf(options) })
    return Promise.resolve({ sink, end: async () => sink.close?.() })
  },
  byHand(address) {
    const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY })
    const key = Buffer.from(SECRET.slice('whsec_'.length), 'base64')
    const post = async (event: OutboxEvent): Promise<void> => {
      const { id, body } = event
      const timestamp = String(Math.floor(Date.now() / 1000))
      const signature = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')
      const sending = request(`http://${address}/events`, {
        method: 'POST',
        agent,
        headers: {
          ...messageHeaders(event),
          'idempotency-key': id,
          'webhook-id': id,
          'webhook-timestamp': timestamp,
          'webhook-signature': `v1,${signature}`,
          'content-length': body.length,
        },
      })
      sending.end(body)
      const [response] = (await once(sending, 'response')) as [IncomingMessage]
      response.resume()
      if (response.statusCode !== 204) throw new Error(`answered ${response.statusCode}`)
    }
    return Promise.resolve({
      async send(events) {
        const streams = streamsOf(events).values()
        const work = async (): Promise<void> => {
          for (const stream of streams) for (const event of stream) await post(event)
        }
        await Promise.all(Array.from({ length: CONCURRENCY }, work))
      },
      end() {
        agent.destroy()
        return Promise.resolve()
      },
    })
  },
}
