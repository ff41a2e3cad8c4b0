import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { Answer, Header } from './guard.ts'

/** What is needed of Node's response, which Express and Fastify wrap. That of HTTP/2 has the same methods. */
export interface NodeResponse {
  statusCode: number
  statusMessage: string
  getHeaders(): OutgoingHttpHeaders
  setHeader(name: string, value: OutgoingHttpHeader): unknown
  removeHeader(name: string): unknown
  rawListeners(event: string): readonly unknown[]
  removeListener(event: string, listener: (...given: unknown[]) => void): unknown
}

/** Status and headers of a response at one moment, to be put back later. */
export class ResponseHead {
  readonly status: number
  readonly headers: readonly (readonly [string, OutgoingHttpHeader])[]
  readonly #response: NodeResponse
  readonly #message: string

  constructor(response: NodeResponse) {
    this.#response = response
    this.status = response.statusCode
    this.#message = response.statusMessage
    this.headers = entriesOf(response.getHeaders())
  }

  putBack(): void {
    this.#response.statusCode = this.status
    this.#response.statusMessage = this.#message
    for (const name of Object.keys(this.#response.getHeaders())) this.#response.removeHeader(name)
    for (const [name, value] of this.headers) this.#response.setHeader(name, value)
  }
}

/** The events that report the end of an answer. */
const END_EVENTS = ['prefinish', 'finish', 'close'] as const
type EndEvent = (typeof END_EVENTS)[number]

/** Who listened for the end of the answer at one moment. An attempt that was discarded must not see the end of another one's answer. */
export class EndListeners {
  readonly #response: NodeResponse
  readonly #before: ReadonlyMap<EndEvent, ReadonlySet<unknown>>
  readonly #hadOnFinished: boolean

  constructor(response: NodeResponse) {
    this.#response = response
    this.#before = new Map(END_EVENTS.map((event) => [event, new Set(response.rawListeners(event))]))
    this.#hadOnFinished = ON_FINISHED in response
  }

  /** Those that came since. */
  added(event: EndEvent): readonly Listener[] {
    return (this.#response.rawListeners(event) as Listener[]).filter(
      (each) => this.#before.get(event)?.has(each) !== true,
    )
  }

  removeAdded(): void {
    for (const event of END_EVENTS) {
      for (const listener of this.added(event)) this.#response.removeListener(event, listener)
    }
    // It would take its listener for still there.
    if (!this.#hadOnFinished) Reflect.deleteProperty(this.#response, ON_FINISHED)
  }
}

/** As it is kept: `once()` wraps what it is given. */
export type Listener = ((...given: unknown[]) => void) & { readonly listener?: unknown }

/** Where the package on-finished, which Express uses to send files, keeps its own listeners. */
const ON_FINISHED = '__onFinished'

function entriesOf(headers: OutgoingHttpHeaders): (readonly [string, OutgoingHttpHeader])[] {
  return Object.entries(headers).flatMap(([name, value]) =>
    // A list is copied: a cookie that is added later goes into the same list.
    value === undefined ? [] : [[name, Array.isArray(value) ? [...value] : value] as const],
  )
}

/** Headers as a list; a header with several values is several of it. */
export function headersOf(entries: Iterable<readonly [string, unknown]>): Header[] {
  return [...entries].flatMap(([name, value]) =>
    (Array.isArray(value) ? value : value === undefined ? [] : [value]).map((each): Header => [
      name.toLowerCase(),
      String(each),
    ]),
  )
}

/** The values of each header of an answer: two policies in two headers are both in force. */
export function valuesByName({ headers }: Answer): Map<string, string[]> {
  const byName = new Map<string, string[]>()
  for (const [name, value] of headers) byName.set(name, [...(byName.get(name) ?? []), value])
  return byName
}

/** Sets what `writeHead` was given: an object, a list of pairs, or names and values in turn. As there, it replaces what was set before. */
export function setHeaders(response: ServerResponse, headers: unknown): void {
  if (!Array.isArray(headers)) {
    for (const [name, value] of Object.entries(headers ?? {})) response.setHeader(name, value as string)
    return
  }
  const flat = (Array.isArray(headers[0]) ? headers.flat() : headers).map(String)
  const pairs = Array.from({ length: flat.length >> 1 }, (_, at) => flat.slice(2 * at, 2 * at + 2) as [string, string])
  for (const [name] of pairs) response.removeHeader(name)
  for (const [name, value] of pairs) response.appendHeader(name, value)
}
