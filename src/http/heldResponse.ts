import type { ServerResponse } from 'node:http'
import type { Answer } from './guard.ts'
import { type HeldAnswer, signal } from './heldAnswer.ts'
import { EndListeners, headersOf, type Listener, ResponseHead, setHeaders, valuesByName } from './nodeResponse.ts'
import { noAnswer } from './storedAnswers.ts'

type Method = 'write' | 'end' | 'writeHead' | 'flushHeaders'
type WriteArguments = [chunk: unknown, encoding: BufferEncoding]

/** If a handler with a listener for the end of its answer continues for this time after it, it counts as waiting for that end. */
const SELF_WAIT_MS = 10_000

/**
 * Stands before the response while the handler runs. Where the guard has to see the answer whole, all of it is kept here. Where not, it
 * can be streamed; only its end is kept, so that a client that has read it finds the lease released.
 *
 * Status and headers are those of the moment at which Node would have sent them: whatever the handler sets later is not in the answer.
 *
 * A listener for `finish` is called when the answer was sent, after the work. A handler that *waits* for that would wait for itself. Where
 * that is certain (`pipeline()`, a promise's own resolver) it is answered at once: under a guard that stores the answer with an error, under
 * one that does not by letting the answer through. Where it cannot be known, that comes after `SELF_WAIT_MS`.
 */
export class HeldResponse implements HeldAnswer {
  #failed = withReject()
  #answered = signal()
  readonly #response: ServerResponse
  readonly #maxBytes: number | undefined
  /** As of the moment before the handler first ran. */
  #before: { readonly head: ResponseHead; readonly listeners: EndListeners } | undefined
  readonly #originals = new Map<Method, PropertyDescriptor | undefined>()
  /** Set by the first of `writeHead`, `write` and `end`. */
  #head: ResponseHead | undefined
  #chunks: Buffer[] = []
  #size = 0
  #ended = false
  /** What `end` was called with, where it is only the end that is kept. */
  #end: readonly unknown[] = []
  /** What was to be called at the end. */
  #callback: Listener | undefined
  #selfWait: NodeJS.Timeout | undefined

  constructor(response: ServerResponse, maxBytes: number | undefined) {
    this.#response = response
    this.#maxBytes = maxBytes
  }

  /** Rejects when this attempt of the handler can never end by itself. */
  get failed(): Promise<never> {
    return this.#failed.promise
  }

  get answered(): Promise<void> {
    return this.#answered.given
  }

  get isAnswered(): boolean {
    return this.#ended
  }

  /** Before the handler runs, also when it runs again: what it answered before is forgotten. */
  begin(): void {
    this.discard()
    this.#before ??= { head: new ResponseHead(this.#response), listeners: new EndListeners(this.#response) }
    this.#failed = withReject()
    this.#answered = signal()
    if (this.#maxBytes === undefined) this.#holdEnd()
    else this.#holdAll(this.#maxBytes)
  }

  handlerEnded(): void {
    clearTimeout(this.#selfWait)
  }

  whole(): Promise<Answer | undefined> {
    if (!this.#ended || this.#head === undefined) throw noAnswer('The handler has ended, and its response has not.')
    if (this.#size > (this.#maxBytes ?? Infinity)) return Promise.resolve(undefined)
    const { status, headers } = this.#head
    return Promise.resolve({ status, headers: headersOf(headers), body: Buffer.concat(this.#chunks) })
  }

  handBack(): void {
    this.#restore()
  }

  letGo(): void {
    this.#restore()
    if (!this.#response.headersSent) this.#head?.putBack()
    if (!this.#ended) return
    const callback = this.#callback === undefined ? [] : [this.#callback]
    const given = this.#maxBytes === undefined ? this.#end : [Buffer.concat(this.#chunks), ...callback]
    this.#response.end(...(given as WriteArguments))
  }

  replaceWith(answer: Answer): void {
    // Too late for another answer.
    if (this.#response.headersSent) return this.letGo()
    this.discard()
    this.#response.statusCode = answer.status
    for (const [name, values] of valuesByName(answer)) {
      this.#response.setHeader(name, values.length === 1 ? (values[0] as string) : values)
    }
    this.#response.end(answer.body)
  }

  /** The response as it was before the handler. */
  discard(): void {
    this.#restore()
    this.#head = undefined
    this.#chunks = []
    this.#size = 0
    this.#ended = false
    this.#end = []
    this.#callback = undefined
    if (this.#response.headersSent) return
    this.#before?.listeners.removeAdded()
    this.#before?.head.putBack()
  }

  #holdEnd(): void {
    const response = this.#response
    const write = response.write.bind(response)
    const flushHeaders = response.flushHeaders.bind(response)
    this.#holdHead()
    const sendHead = (): void => {
      if (response.headersSent) return
      this.#fixHead().putBack()
      // Node calls it by itself before the first byte.
      this.#restoreOne('writeHead')
    }
    this.#override('write', (...given: unknown[]) => {
      sendHead()
      return write(...(given as WriteArguments))
    })
    this.#override('flushHeaders', () => {
      sendHead()
      flushHeaders()
    })
    this.#override('end', (...given: unknown[]) => {
      if (this.#ended) return response
      this.#fixHead()
      this.#ended = true
      this.#end = given
      this.#answered.give()
      this.#watchSelfWait(given, () => {
        // Its end may come now; that it has ended is remembered, so that it is not ended again.
        this.letGo()
        this.#ended = false
      })
      return response
    })
  }

  #holdAll(maxBytes: number): void {
    const response = this.#response
    const take = (chunk: unknown, encoding: unknown): void => {
      this.#fixHead()
      if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array)) return
      const bytes =
        typeof chunk === 'string'
          ? Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8')
          : Buffer.from(chunk)
      this.#size += bytes.byteLength
      // What is too large is refused as a whole.
      if (this.#size <= maxBytes) this.#chunks.push(bytes)
    }
    this.#holdHead()
    this.#override('write', (...given: unknown[]) => {
      if (!this.#ended) take(given[0], given[1])
      const callback = callbackIn(given)
      if (callback !== undefined) process.nextTick(callback)
      return true
    })
    this.#override('end', (...given: unknown[]) => {
      if (this.#ended) return response
      take(given[0], given[1])
      this.#ended = true
      this.#callback = callbackIn(given)
      this.#answered.give()
      this.#watchSelfWait(given, () =>
        this.#failed.reject(noAnswer('The handler waits for its own response to be sent.')),
      )
      return response
    })
    this.#override('flushHeaders', () => void this.#fixHead())
  }

  #holdHead(): void {
    this.#override('writeHead', (...given: unknown[]) => {
      if (this.#head !== undefined) return this.#response
      const named = typeof given[1] === 'string'
      this.#response.statusCode = given[0] as number
      if (named) this.#response.statusMessage = given[1] as string
      setHeaders(this.#response, given[named ? 2 : 1])
      this.#fixHead()
      return this.#response
    })
  }

  #fixHead(): ResponseHead {
    return (this.#head ??= new ResponseHead(this.#response))
  }

  /** Calls back when the handler waits for its own answer: at once where that is certain, after a while where it may be. */
  #watchSelfWait(given: readonly unknown[], end: () => void): void {
    const callback = callbackIn(given)
    const added = [...(this.#before?.listeners.added('finish') ?? []), ...(callback === undefined ? [] : [callback])]
    if (added.length === 0) return
    if (added.some(resolvesPromise) || isPipeline(added, this.#response.listeners('error'))) end()
    else this.#selfWait = setTimeout(end, SELF_WAIT_MS).unref()
  }

  #override(name: Method, method: (...given: unknown[]) => unknown): void {
    this.#originals.set(name, Object.getOwnPropertyDescriptor(this.#response, name))
    Object.defineProperty(this.#response, name, { value: method, configurable: true, writable: true, enumerable: true })
  }

  #restore(): void {
    clearTimeout(this.#selfWait)
    for (const name of this.#originals.keys()) this.#restoreOne(name)
  }

  #restoreOne(name: Method): void {
    const original = this.#originals.get(name)
    if (original !== undefined) Object.defineProperty(this.#response, name, original)
    else if (this.#originals.has(name)) Reflect.deleteProperty(this.#response, name)
    this.#originals.delete(name)
  }
}

function withReject(): { readonly promise: Promise<never>; readonly reject: (error: Error) => void } {
  let reject: (error: Error) => void = () => undefined
  const promise = new Promise<never>((_resolve, rejects) => (reject = rejects))
  promise.catch(() => undefined)
  return { promise, reject }
}

function callbackIn(given: readonly unknown[]): Listener | undefined {
  return given.findLast((each): each is Listener => typeof each === 'function')
}

/** The function that `new Promise()` hands out, or that of `events.once()`: a caller awaits it. */
function resolvesPromise(added: Listener): boolean {
  const listener = (added.listener ?? added) as Listener
  return (
    listener.name === 'resolver' || (listener.name === '' && NATIVE.test(Function.prototype.toString.call(listener)))
  )
}

const NATIVE = /^function \(\) \{\s*\[native code\]\s*\}$/

/** The listeners of Node's own `pipeline()`. That of `finished()` alone may be there only to look on. */
function isPipeline(added: readonly Listener[], forErrors: readonly unknown[]): boolean {
  const isNamed = (each: unknown, name: string): boolean => typeof each === 'function' && each.name === name
  return added.some((each) => isNamed(each, 'onfinish')) && forErrors.some((each) => isNamed(each, 'onError'))
}
