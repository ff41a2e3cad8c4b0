import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { TLSSocket } from 'node:tls'
import { refusal } from './responses.ts'
import type { RequestSource } from './origin.ts'

type Handle = (request: Request, source: RequestSource) => Promise<Response>

/** Makes a listener of node:http of a handler of requests. */
export function nodeListener(handle: Handle): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  return (incoming, outgoing) => {
    answerTo(handle, incoming)
      .then((response) => send(response, outgoing))
      // The other end has gone.
      .catch(() => outgoing.destroy())
  }
}

async function answerTo(handle: Handle, incoming: IncomingMessage): Promise<Response> {
  const request = requestOf(incoming)
  if (request === undefined)
    return refusal(400, 'malformed', 'Malformed', 'The request has no address that can be read.')
  return handle(request, {
    address: incoming.socket.remoteAddress,
    keepsEncoding: true,
    oldHttp: incoming.httpVersionMajor === 1 && incoming.httpVersionMinor === 0,
  })
}

function requestOf(incoming: IncomingMessage): Request | undefined {
  const { method = 'GET', headers, socket } = incoming
  // Where a router has cut the mount's path off, it keeps the whole one.
  const { originalUrl: path = incoming.url ?? '/' } = incoming as IncomingMessage & { readonly originalUrl?: string }
  const scheme = (socket as Partial<TLSSocket>).encrypted === true ? 'https' : 'http'
  const { host } = headers
  if (host === undefined || !/^[\w.:[\]-]+$/.test(host) || !path.startsWith('/')) return undefined
  const address = `${scheme}://${host}${path}`
  if (!URL.canParse(address)) return undefined
  const copied = new Headers()
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(':') && value !== undefined) copied.set(name, Array.isArray(value) ? value.join(', ') : value)
  }
  const body = method === 'POST' ? { body: Readable.toWeb(incoming) as ReadableStream, duplex: 'half' as const } : {}
  try {
    return new Request(address, { method, headers: copied, ...body })
  } catch {
    // A method that is not allowed.
    return undefined
  }
}

async function send(response: Response, outgoing: ServerResponse): Promise<void> {
  outgoing.statusCode = response.status
  response.headers.forEach((value, name) => {
    if (name !== 'set-cookie') outgoing.setHeader(name, value)
  })
  const cookies = response.headers.getSetCookie()
  if (cookies.length > 0) outgoing.setHeader('set-cookie', cookies)
  if (response.body === null) {
    outgoing.end()
    return
  }
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  const gone = new AbortController()
  outgoing.once('close', () => {
    gone.abort()
    // The source of the stream learns that it is no longer read.
    reader.cancel().catch(() => undefined)
  })
  outgoing.flushHeaders()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    // What is not taken is waited for: the next piece is made when there is room for it.
    if (!outgoing.write(value)) await once(outgoing, 'drain', { signal: gone.signal })
  }
  outgoing.end()
}
