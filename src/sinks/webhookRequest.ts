import { Agent as HttpAgent, type IncomingMessage, request as requestHttp, type RequestOptions } from 'node:http'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'
import type { SecureContextOptions } from 'node:tls'
import { urlToHttpOptions } from 'node:url'
import { literalAddress, isPublicAddress, PrivateAddressError, publicLookup } from './publicAddress.ts'

/** What a receiver said. */
export interface HttpAnswer {
  readonly status: number
  readonly statusText: string
  readonly retryAfter: string | undefined
  readonly date: string | undefined
  readonly location: string | undefined
  /** The beginning of the body, for a person to read. Empty where all is well. */
  readonly text: string
}

/** The time for a request is over. */
export class RequestTimeoutError extends Error {
  override readonly name = 'NoAnswer'
}

/** Certificates, for receivers that a private authority has signed or that ask for ours. */
export type WebhookTls = Pick<SecureContextOptions, 'ca' | 'cert' | 'key' | 'passphrase' | 'pfx'>

/** Servers close idle connections after five seconds, proxies after sixty: who closes first has no race to lose. */
const IDLE_MS = 4000
const TEXT_BYTES = 500
/** Of a longer body the connection is not worth keeping. */
const LONGEST_BODY_BYTES = 65_536

/**
 * Requests over connections that are kept. Not `fetch`: it resolves a name by itself, after any check of ours, and a name may lead
 * elsewhere by then. Here the address that was checked is the one that is connected to. Connections that can lead to private addresses
 * are never used for other URLs.
 */
export class Connections {
  readonly #open: { http: HttpAgent; https: HttpsAgent }
  readonly #public: { http: HttpAgent; https: HttpsAgent }
  readonly #places = new WeakMap<URL, RequestOptions>()

  constructor(most: number, tls: WebhookTls) {
    // No more connections than requests: an answer's connection is free a moment after the answer, and worth that wait.
    const options = {
      keepAlive: true,
      maxSockets: most,
      maxFreeSockets: most,
      timeout: IDLE_MS,
      scheduling: 'lifo' as const,
    }
    const agents = (more: object): { http: HttpAgent; https: HttpsAgent } => ({
      http: new HttpAgent({ ...options, ...more }),
      https: new HttpsAgent({ ...options, ...more, ...tls }),
    })
    this.#open = agents({})
    this.#public = agents({ lookup: publicLookup })
  }

  /** One request and its answer. Fails with what the network says, with `NoAnswer`, or with `PrivateAddressError`. */
  async ask(
    method: 'POST' | 'HEAD',
    url: URL,
    headers: Readonly<Record<string, string>>,
    body: Buffer | undefined,
    options: { readonly publicOnly: boolean; readonly timeoutMs: number },
  ): Promise<HttpAnswer> {
    const literal = literalAddress(url)
    if (options.publicOnly && literal !== undefined && !isPublicAddress(literal)) {
      throw new PrivateAddressError(literal, literal)
    }
    const until = performance.now() + options.timeoutMs
    const reused = { socket: false }
    try {
      return await this.#once(method, url, headers, body, options.publicOnly, options.timeoutMs, reused)
    } catch (error) {
      const left = until - performance.now()
      // The receiver closed an idle connection as we took it up: that says nothing about the receiver, so it is asked once more.
      if (!reused.socket || !isReset(error) || left <= 0) throw error
      return this.#once(method, url, headers, body, options.publicOnly, left, { socket: false })
    }
  }

  destroy(): void {
    for (const { http, https } of [this.#open, this.#public]) {
      http.destroy()
      https.destroy()
    }
  }

  #placeOf(url: URL): RequestOptions {
    const known = this.#places.get(url)
    if (known !== undefined) return known
    const { protocol, hostname, port, path } = urlToHttpOptions(url)
    const place: RequestOptions = { protocol, hostname, path, ...(port === undefined ? {} : { port }) }
    this.#places.set(url, place)
    return place
  }

  #once(
    method: string,
    url: URL,
    headers: Readonly<Record<string, string>>,
    body: Buffer | undefined,
    publicOnly: boolean,
    timeoutMs: number,
    reused: { socket: boolean },
  ): Promise<HttpAnswer> {
    const agents = publicOnly ? this.#public : this.#open
    return new Promise((resolve, reject) => {
      // As a list they are sent as they are: an object would be taken apart and put together again.
      const list = ['host', url.host]
      for (const name in headers) list.push(name, headers[name] as string)
      const options = { ...this.#placeOf(url), method, headers: list }
      const request =
        url.protocol === 'https:'
          ? requestHttps({ ...options, agent: agents.https })
          : requestHttp({ ...options, agent: agents.http })
      // Runs on until the body has ended: a receiver that never ends it does not keep its connection.
      const timer = setTimeout(() => {
        request.destroy(new RequestTimeoutError(`no answer in ${Math.round(timeoutMs)} ms`))
      }, timeoutMs)
      let answered = false
      const failed = (error: Error): void => {
        clearTimeout(timer)
        reused.socket = request.reusedSocket
        if (!answered) reject(error)
      }
      request.on('error', failed)
      request.on('close', () => failed(new Error('the connection was closed without an answer')))
      request.on('response', (response) => {
        answered = true
        response.on('error', () => undefined)
        // After a success the body is not waited for. It is read all the same, so that the connection can be used again.
        const reading = textOf(response)
        if (isFine(response)) resolve(answerOf(response, ''))
        else void reading.then((text) => resolve(answerOf(response, text)))
      })
      request.end(body)
    })
  }
}

function isFine({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200 && statusCode < 300
}

function isReset(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException
  return code === 'ECONNRESET' || code === 'EPIPE'
}

function answerOf(response: IncomingMessage, text: string): HttpAnswer {
  const { statusCode = 0, statusMessage = '', headers } = response
  return {
    status: statusCode,
    statusText: plain(statusMessage),
    retryAfter: headers['retry-after'],
    date: headers.date,
    location: headers.location,
    text,
  }
}

/** The beginning of a body in one line. The rest is read and dropped, so that the connection can be used again. */
function textOf(response: IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = []
    let size = 0
    response.on('data', (chunk: Buffer) => {
      if (size < TEXT_BYTES) chunks.push(chunk)
      size += chunk.length
      if (size > LONGEST_BODY_BYTES) response.destroy()
    })
    response.on('close', () => {
      resolve(plain(Buffer.concat(chunks).subarray(0, TEXT_BYTES).toString()))
    })
  })
}

/** In one line, without what moves a cursor: what a receiver says goes to an operator's terminal. */
export function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex -- these are what is taken out
  return text.replace(/[\x00-\x1f\x7f-\x9f\s]+/g, ' ').trim()
}
