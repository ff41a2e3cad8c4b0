import type { ServerResponse } from 'node:http'
import type { Answer, Draft, Guard } from './guard.ts'
import { headersOf, incomingOf, type ParsedRequest } from './nodeRequest.ts'
import { noAnswer } from './storedAnswers.ts'

/**
 * For Express 5. The handler's promise is its work: when it ends, the lease is given back or the answer stored, and only then is the
 * answer sent. So it must not wait for its own answer to be sent.
 *
 * @example
 * app.post('/instances/:id/next', expressHandler(oneAtATime, async (request, response, lease) => {
 *   response.json(await next(request.params.id, lease))
 * }))
 */
export function expressHandler<Request extends ParsedRequest, Response extends ServerResponse, Given>(
  guard: Guard<Request, Given>,
  handler: (request: Request, response: Response, given: Given) => unknown,
): (request: Request, response: Response, next: (error?: unknown) => void) => Promise<void> {
  return async (request, response, next) => {
    const held = new HeldResponse(response, guard.wholeUpTo)
    try {
      const verdict = await guard.handle(incomingOf(request), async (given) => {
        held.begin()
        await Promise.race([handler(request, response, given), held.failed])
        return held
      })
      if (verdict === 'own') held.letGo()
      else held.replaceWith(verdict)
    } catch (error) {
      held.discard()
      next(error)
    }
  }
}

type Method = 'write' | 'end' | 'writeHead' | 'flushHeaders'
type WriteArguments = [chunk: unknown, encoding: BufferEncoding]

/**
 * Stands before the response while the handler runs. Where the guard has to see the answer whole, all of it is kept here. Where not, it
 * may be streamed; only an answer that comes in one piece is kept, so that whoever reads it finds the lease given back.
 */
class HeldResponse implements Draft {
  readonly failed: Promise<never>
  readonly #response: ServerResponse
  readonly #maxBytes: number | undefined
  readonly #status: number
  readonly #headers: readonly [string, string | number | readonly string[]][]
  readonly #originals = new Map<Method, PropertyDescriptor | undefined>()
  readonly #listeners: number
  #fail: (error: Error) => void = () => undefined
  #chunks: Buffer[] = []
  #size = 0
  #ended = false
  #streamed = false
  #end: readonly unknown[] | undefined

  constructor(response: ServerResponse, maxBytes: number | undefined) {
    this.#response = response
    this.#maxBytes = maxBytes
    this.#status = response.statusCode
    this.#headers = Object.entries(response.getHeaders()) as [string, string | number | readonly string[]][]
    this.#listeners = response.listenerCount('finish')
    this.failed = new Promise<never>((_resolve, reject) => (this.#fail = reject))
    this.failed.catch(() => undefined)
  }

  /** Before the handler runs, also when it runs again: what it answered before is forgotten. */
  begin(): void {
    this.#restore()
    this.#reset()
    if (this.#maxBytes === undefined) this.#holdEnd()
    else this.#holdAll(this.#maxBytes)
  }

  whole(): Promise<Answer | undefined> {
    if (!this.#ended) throw noAnswer('The handler has ended, and its response has not.')
    if (this.#size > (this.#maxBytes ?? Infinity)) return Promise.resolve(undefined)
    const { statusCode: status } = this.#response
    return Promise.resolve({
      status,
      headers: headersOf(this.#response.getHeaders()),
      body: Buffer.concat(this.#chunks),
    })
  }

  letGo(): void {
    this.#restore()
    if (this.#maxBytes !== undefined) this.#response.end(Buffer.concat(this.#chunks))
    else if (this.#end !== undefined) this.#response.end(...(this.#end as WriteArguments))
  }

  replaceWith({ status, headers, body }: Answer): void {
    // Too late for another answer.
    if (this.#response.headersSent) return this.letGo()
    this.discard()
    this.#response.statusCode = status
    for (const [name, value] of headers) this.#response.setHeader(name, value)
    this.#response.end(body)
  }

  discard(): void {
    this.#restore()
    if (!this.#response.headersSent) this.#reset()
  }

  #reset(): void {
    this.#chunks = []
    this.#size = 0
    this.#ended = false
    this.#end = undefined
    if (this.#response.headersSent) return
    this.#response.statusCode = this.#status
    this.#response.statusMessage = ''
    for (const name of this.#response.getHeaderNames()) this.#response.removeHeader(name)
    for (const [name, value] of this.#headers) this.#response.setHeader(name, value)
  }

  #holdEnd(): void {
    const response = this.#response
    const write = response.write.bind(response)
    const end = response.end.bind(response)
    this.#override('write', (...given: unknown[]) => {
      this.#streamed = true
      return write(...(given as WriteArguments))
    })
    this.#override('end', (...given: unknown[]) => {
      if (this.#streamed || this.#isWaitedFor(given)) return end(...(given as WriteArguments))
      this.#end ??= given
      return response
    })
  }

  #holdAll(maxBytes: number): void {
    const response = this.#response
    const take = (chunk: unknown, encoding: unknown): void => {
      if (this.#ended || (typeof chunk !== 'string' && !(chunk instanceof Uint8Array))) return
      const bytes =
        typeof chunk === 'string'
          ? Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8')
          : Buffer.from(chunk)
      this.#size += bytes.byteLength
      // What is too large is refused as a whole.
      if (this.#size <= maxBytes) this.#chunks.push(bytes)
    }
    this.#override('write', (...given: unknown[]) => {
      take(given[0], given[1])
      const callback = given.findLast((each) => typeof each === 'function')
      if (callback !== undefined) process.nextTick(callback)
      return true
    })
    this.#override('end', (...given: unknown[]) => {
      if (this.#isWaitedFor(given)) this.#fail(noAnswer('The handler waits for its own response to be sent.'))
      take(given[0], given[1])
      this.#ended = true
      return response
    })
    this.#override('writeHead', (...given: unknown[]) => {
      response.statusCode = given[0] as number
      setHeaders(response, typeof given[1] === 'string' ? given[2] : given[1])
      return response
    })
    this.#override('flushHeaders', () => undefined)
  }

  /** By a callback, or by somebody who began to listen while the handler ran: `pipeline(stream, response)`. */
  #isWaitedFor(given: readonly unknown[]): boolean {
    if (given.some((each) => typeof each === 'function')) return true
    return this.#response.listenerCount('finish') > this.#listeners
  }

  #override(name: Method, method: (...given: unknown[]) => unknown): void {
    this.#originals.set(name, Object.getOwnPropertyDescriptor(this.#response, name))
    Object.defineProperty(this.#response, name, { value: method, configurable: true, writable: true, enumerable: true })
  }

  #restore(): void {
    for (const [name, original] of this.#originals) {
      if (original === undefined) Reflect.deleteProperty(this.#response, name)
      else Object.defineProperty(this.#response, name, original)
    }
    this.#originals.clear()
  }
}

/** What `writeHead` takes: an object, a list of pairs, or names and values in turn. */
function setHeaders(response: ServerResponse, headers: unknown): void {
  if (!Array.isArray(headers)) {
    for (const [name, value] of Object.entries(headers ?? {})) response.setHeader(name, value as string)
  } else if (Array.isArray(headers[0])) {
    for (const [name, value] of headers as [string, string][]) response.appendHeader(name, value)
  } else {
    for (let at = 0; at + 1 < headers.length; at += 2)
      response.appendHeader(String(headers[at]), String(headers[at + 1]))
  }
}
