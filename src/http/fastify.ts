import type { Answer, Guard } from './guard.ts'
import { type HeldAnswer, signal } from './heldAnswer.ts'
import { incomingOf, type ParsedRequest } from './nodeRequest.ts'
import { EndListeners, headersOf, type NodeResponse, ResponseHead, valuesByName } from './nodeResponse.ts'
import { noAnswer } from './storedAnswers.ts'

/** What the adapter needs of Fastify's reply. */
export interface FastifyLikeReply {
  readonly raw: NodeResponse
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
 * lease is released or the answer stored.
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

export class HeldReply implements HeldAnswer {
  readonly #reply: FastifyLikeReply
  readonly #maxBytes: number | undefined
  /** As of the moment before the handler first ran. */
  #before: ReplyBefore | undefined
  #overridden = false
  #answered = false
  #whenAnswered = signal()
  #payload: unknown

  constructor(reply: FastifyLikeReply, maxBytes: number | undefined) {
    this.#reply = reply
    this.#maxBytes = maxBytes
  }

  get answered(): Promise<void> {
    return this.#whenAnswered.given
  }

  get isAnswered(): boolean {
    return this.#answered
  }

  /** Before the handler runs, also when it runs again: what it answered before is forgotten. */
  begin(): void {
    this.discard()
    this.#before ??= new ReplyBefore(this.#reply)
    this.#overridden = true
    this.#whenAnswered = signal()
    const send = (payload?: unknown): FastifyLikeReply => {
      if (!this.#answered) this.#payload = payload
      this.#answered = true
      this.#whenAnswered.give()
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
    const headers = headersOf(Object.entries(this.#reply.getHeaders()))
    return Promise.resolve({ status: this.#reply.statusCode, headers, body })
  }

  handBack(): void {
    this.#restore()
  }

  letGo(): void {
    this.#restore()
    if (this.#answered) this.#reply.send(this.#payload)
    else if (!this.#reply.sent) this.#reply.send()
  }

  replaceWith(answer: Answer): void {
    // Written past Fastify: too late for another answer.
    if (this.#reply.sent) return this.#restore()
    this.discard()
    const { status, body } = answer
    this.#reply.code(status)
    for (const [name, values] of valuesByName(answer)) {
      this.#reply.header(name, values.length === 1 ? values[0] : values)
    }
    this.#reply.send(body.byteLength === 0 ? undefined : Buffer.from(body))
  }

  discard(): void {
    this.#restore()
    this.#answered = false
    this.#payload = undefined
    if (!this.#reply.sent) this.#before?.putBack()
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

/** What is not part of an answer. */
const NOT_ANSWER: ReadonlySet<PropertyKey> = new Set(['raw', 'request', 'log'])

/**
 * A reply as hooks have left it to the handler. Fastify and its plugins keep their part of an answer (headers, a serializer, cookies) in
 * properties of the reply; what was written past Fastify stands on the raw response.
 */
class ReplyBefore {
  readonly #reply: FastifyLikeReply
  readonly #own: ReadonlyMap<PropertyKey, () => unknown>
  readonly #head: ResponseHead
  readonly #listeners: EndListeners
  /** Those that are not the raw response's. */
  readonly #headers: readonly (readonly [string, unknown])[]

  constructor(reply: FastifyLikeReply) {
    const raw = reply.raw.getHeaders()
    this.#reply = reply
    this.#own = new Map(ownKeys(reply).map((name) => [name, remember(Reflect.get(reply, name))]))
    this.#head = new ResponseHead(reply.raw)
    this.#listeners = new EndListeners(reply.raw)
    this.#headers = Object.entries(reply.getHeaders())
      .filter(([name, value]) => raw[name] !== value)
      .map(([name, value]) => [name, copyOfList(value)])
  }

  putBack(): void {
    const reply = this.#reply
    for (const name of ownKeys(reply)) if (!this.#own.has(name)) Reflect.deleteProperty(reply, name)
    for (const [name, value] of this.#own) Reflect.set(reply, name, value())
    // First all away: Fastify adds a cookie to those that are there.
    for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name)
    this.#listeners.removeAdded()
    this.#head.putBack()
    for (const [name, value] of this.#headers) reply.header(name, copyOfList(value))
  }
}

function ownKeys(reply: object): PropertyKey[] {
  return Reflect.ownKeys(reply).filter((name) => !NOT_ANSWER.has(name))
}

/** Gives the value with what it holds now: plugins change maps, lists and plain objects in place, and keep them. */
function remember(value: unknown): () => unknown {
  if (value instanceof Map) {
    const entries = [...value]
    return () => {
      value.clear()
      for (const [name, each] of entries) value.set(name, each)
      return value
    }
  }
  if (Array.isArray(value)) {
    const items = [...(value as unknown[])]
    return () => (value.splice(0, value.length, ...items), value)
  }
  if (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype) {
    const entries = Object.entries(value).map(([name, each]) => [name, copyOfList(each)] as const)
    return () => {
      for (const name of Object.keys(value)) Reflect.deleteProperty(value, name)
      for (const [name, each] of entries) Reflect.set(value, name, copyOfList(each))
      return value
    }
  }
  return () => value
}

function copyOfList(value: unknown): unknown {
  return Array.isArray(value) ? [...(value as unknown[])] : value
}

function isStream(payload: unknown): boolean {
  if (typeof payload !== 'object' || payload === null) return false
  return 'pipe' in payload || 'getReader' in payload || payload instanceof Response
}
