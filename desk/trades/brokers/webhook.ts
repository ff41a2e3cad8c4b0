import { once } from 'node:events'
import type { Context } from 'hono'
import { HistoryDivergedError, InboxGapError, WebhookUnverifiedError } from 'pg-lockstep'
import { verifyWebhook, webhookSink } from 'pg-lockstep/webhook'
import type { Desk, DeskEvents } from '../../desk.ts'
import { ProblemError } from '../../http/problem.ts'
import { book } from '../book.ts'
import type { Broker } from './broker.ts'

export const WEBHOOK_PATH = '/webhooks/trades'

/** Webhooks: no broker, but a request for each event. They go to the desk itself, or to another one that has the same secret. */
export async function webhook(desk: Desk, url: string): Promise<Broker> {
  const { secret = '', authorization } = desk.sink ?? {}
  const isOwn = url === ''
  const sink = webhookSink({
    url: isOwn ? `${desk.sink?.ownOrigin()}${WEBHOOK_PATH}` : url,
    secret,
    ...(isOwn && authorization !== undefined && { headers: { authorization } }),
  })
  return {
    sink,
    close: async () => {},
    // The process that receives the request books: see receiveWebhook().
    async read(signal) {
      if (!signal.aborted) await once(signal, 'abort')
    },
  }
}

/** The receiver. The status says what the sender does: 2xx nothing, 425 and 5xx send again, another 4xx wait for a person. */
export async function receiveWebhook({ lockstep, sink }: Desk, c: Context): Promise<Response> {
  const body = Buffer.from(await c.req.arrayBuffer())
  try {
    await book(lockstep, [
      verifyWebhook<DeskEvents['trades']>(Object.fromEntries(c.req.raw.headers), body, sink?.secret ?? ''),
    ])
    return c.body(null, 204)
  } catch (error) {
    if (error instanceof WebhookUnverifiedError) throw new ProblemError('webhook-unverified', error.message)
    if (error instanceof InboxGapError) throw new ProblemError('webhook-early', error.message)
    if (error instanceof HistoryDivergedError) throw new ProblemError('history-diverged', error.message)
    throw error
  }
}
