import type { ServerResponse } from 'node:http'
import { type FastifyLikeReply, HeldReply } from './fastify.ts'
import type { HeldAnswer } from './heldAnswer.ts'
import { HeldResponse } from './heldResponse.ts'

/** The response of Express, or the reply of Fastify. */
export type ResponseOrReply = ServerResponse | FastifyLikeReply

/** For frameworks that run on Express or Fastify, and answer with code of their own after the handler has ended. */
export function holdAnswer(response: ResponseOrReply, maxBytes: number | undefined): HeldAnswer {
  return isReply(response) ? new HeldReply(response, maxBytes) : new HeldResponse(response, maxBytes)
}

/** Node's response behind it. */
export function rawResponse(response: ResponseOrReply): ServerResponse {
  return isReply(response) ? (response.raw as unknown as ServerResponse) : response
}

export function isReply(response: ResponseOrReply): response is FastifyLikeReply {
  return 'raw' in response
}

/** What a framework answers with. Node's own methods stay: other code may send the answer a little later, as of a session. */
const ANSWERING = [
  'send',
  'json',
  'jsonp',
  'render',
  'redirect',
  'sendStatus',
  'sendFile',
  'status',
  'code',
  'end',
  'write',
]

/** The answer is on its way: what the framework still answers is ignored. */
export function mute(response: ResponseOrReply): void {
  for (const name of ANSWERING) {
    if (!(name in response)) continue
    Object.defineProperty(response, name, { value: () => response, configurable: true, writable: true })
  }
  if (!isReply(response)) ignoreLateHeaders(response)
}

/** Node throws for a header after the answer was sent. An interceptor that measures or marks every answer would fail at each replay. */
function ignoreLateHeaders(response: ServerResponse): void {
  for (const name of ['setHeader', 'appendHeader', 'removeHeader'] as const) {
    const original = response[name].bind(response) as (...given: unknown[]) => unknown
    const value = (...given: unknown[]): unknown => (response.headersSent ? response : original(...given))
    Object.defineProperty(response, name, { value, configurable: true, writable: true })
  }
}
