import type { OutgoingHttpHeaders } from 'node:http'
import type { Answer, Draft, Guard } from './guard.ts'
import { headersOf, incomingOf, type ParsedRequest } from './nodeRequest.ts'
import { noAnswer } from './storedAnswers.ts'

/** What the adapter needs of Fastify's reply. */
export interface FastifyLikeReply {
  readonly sent: boolean
  readonly statusCode: number
  code(status: number): unknown
  header(name: string, value: unknown): unknown
  getHeaders(): Record<string, unknown>
  removeHeader(name: string): unknown
  send(payload?: unknown): unknown
  serialize(payload: unknown): unknown
}

/**
 * For Fastify 5. The handler returns its payload or calls `reply.send()`; what it answered goes out when its promise has ended and the
 * lease is given back or the answer stored.
 *
 * @example
 * app.post('/instances/:id/next', fastifyHandler(oneAtATime, async (request, reply, lease) => next(request.params.id, lease)))
 */
export function fastifyHandler<Request extends ParsedRequest, Reply extends FastifyLikeReply, Given>(
  guard: Guard<Request, Given>,
  handler: (request: Request, reply: Reply, given: Given) => unknown,
): (request: Request, reply: Reply) => Promise<Reply> {
  return async (request, reply) => {
    const held = new HeldReply(reply, guard.wholeUpTo)
    try {
      const verdict = await guard.handle(incomingOf(request), async (given) => {
        held.begin()
        held.take(await handler(request, reply, given))
        return held
      })
      if (verdict === 'own') held.letGo()
      else held.replaceWith(verdict)
      return reply
    } catch (error) {
      held.discard()
      throw error
    }
  }
}

class HeldReply implements Draft {
  readonly #reply: FastifyLikeReply
  readonly #maxBytes: number | undefined
  readonly #status: number
  readonly #headers: Readonly<Record<string, unknown>>
  #overridden = false
  #answered = false
  #payload: unknown

  constructor(reply: FastifyLikeReply, maxBytes: number | undefined) {
    this.#reply = reply
    this.#maxBytes = maxBytes
    this.#status = reply.statusCode
    this.#headers = { ...reply.getHeaders() }
  }

  /** Before the handler runs, also when it runs again: what it answered before is forgotten. */
  begin(): void {
    this.discard()
    this.#overridden = true
    const send = (payload?: unknown): FastifyLikeReply => {
      if (!this.#answered) this.#payload = payload
      this.#answered = true
      return this.#reply
    }
    this.#override('send', send)
    // A reply is a promise of its end. A handler that returns it would wait for what is held until the handler ends.
    this.#override('then', undefined)
  }

  /** What the handler returned, where it has not sent anything. An error is Fastify's to answer. */
  take(returned: unknown): void {
    if (!this.#answered && returned !== undefined && returned !== this.#reply) {
      this.#answered = true
      this.#payload = returned
    }
    if (this.#payload instanceof Error) throw this.#payload
  }

  whole(): Promise<Answer | undefined> {
    if (!this.#answered) throw noAnswer('The handler has ended, and has given no answer.')
    const [body, contentType] = this.#serialized()
    if (body.byteLength > (this.#maxBytes ?? Infinity)) return Promise.resolve(undefined)
    // The first answer goes out as the stored one will.
    this.#payload = body.byteLength === 0 ? undefined : body
    if (contentType !== undefined && this.#reply.getHeaders()['content-type'] === undefined) {
      this.#reply.header('content-type', contentType)
    }
    const headers = headersOf(this.#reply.getHeaders() as OutgoingHttpHeaders)
    return Promise.resolve({ status: this.#reply.statusCode, headers, body })
  }

  letGo(): void {
    this.#restore()
    if (this.#answered) this.#reply.send(this.#payload)
    else if (!this.#reply.sent) this.#reply.send()
  }

  replaceWith({ status, headers, body }: Answer): void {
    // Written past Fastify: too late for another answer.
    if (this.#reply.sent) return this.#restore()
    this.discard()
    this.#reply.code(status)
    for (const [name, value] of headers) this.#reply.header(name, value)
    this.#reply.send(body.byteLength === 0 ? undefined : Buffer.from(body))
  }

  discard(): void {
    this.#restore()
    this.#answered = false
    this.#payload = undefined
    if (this.#reply.sent) return
    if (this.#reply.statusCode !== this.#status) this.#reply.code(this.#status)
    for (const name of Object.keys(this.#reply.getHeaders())) {
      if (!(name in this.#headers)) this.#reply.removeHeader(name)
    }
    for (const [name, value] of Object.entries(this.#headers)) this.#reply.header(name, value)
  }

  #restore(): void {
    if (this.#overridden) for (const name of ['send', 'then']) Reflect.deleteProperty(this.#reply, name)
    this.#overridden = false
  }

  #override(name: 'send' | 'then', value: unknown): void {
    Object.defineProperty(this.#reply, name, { value, configurable: true, writable: true, enumerable: true })
  }

  /** As Fastify would do it. */
  #serialized(): readonly [Buffer, contentType?: string] {
    const payload = this.#payload
    if (payload === undefined || payload === null) return [Buffer.alloc(0)]
    if (typeof payload === 'string') return [Buffer.from(payload), 'text/plain; charset=utf-8']
    if (payload instanceof Uint8Array) return [Buffer.from(payload), 'application/octet-stream']
    if (isStream(payload)) throw noAnswer('The handler answers with a stream.')
    const text = this.#reply.serialize(payload)
    return [Buffer.from(text as string), 'application/json; charset=utf-8']
  }
}

function isStream(payload: unknown): boolean {
  if (typeof payload !== 'object' || payload === null) return false
  return 'pipe' in payload || 'getReader' in payload || payload instanceof Response
}
