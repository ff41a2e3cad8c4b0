import { checkNesting } from './fingerprint.ts'
import { noAnswer } from './storedAnswers.ts'
import type { Answer, Draft, Guard, Header, Incoming } from './guard.ts'

/**
 * For servers whose handlers take a `Request` and give a `Response`. What the server passes beside the request, as Next.js its `params`, the
 * handler gets after what the guard gives.
 *
 * @example
 * const handle = fetchHandler(exclusive(lockstep, { key: instanceOf }), async (request, lease) => Response.json(await next(lease)))
 *
 * @example
 * // app/instances/[id]/next/route.ts
 * export const POST = fetchHandler(oneAtATime, async (request, lease, { params }: { params: Promise<{ id: string }> }) =>
 *   Response.json(await next((await params).id, lease)),
 * )
 */
export function fetchHandler<Given, Rest extends unknown[] = []>(
  guard: Guard<Request, Given>,
  handler: (request: Request, given: Given, ...rest: Rest) => Response | Promise<Response>,
): (request: Request, ...rest: Rest) => Promise<Response> {
  return async (request, ...rest) => {
    let held: HeldFetchResponse | undefined
    const verdict = await guard.handle(incomingOf(request, request), async (given) => {
      // Each attempt reads the body from its beginning.
      const own = guard.wholeUpTo === undefined ? request : request.clone()
      held = new HeldFetchResponse(await handler(own, given, ...rest), guard.wholeUpTo)
      return held
    })
    return verdict === 'own' ? (held as HeldFetchResponse).response : responseOf(verdict)
  }
}

/** What a handler returned. */
export class HeldFetchResponse implements Draft {
  response: Response
  readonly #maxBytes: number | undefined

  constructor(response: Response, maxBytes: number | undefined) {
    this.response = response
    this.#maxBytes = maxBytes
  }

  async whole(): Promise<Answer | undefined> {
    if (this.response === undefined || this.response.bodyUsed) throw noAnswer('The handler gave no response.')
    const body = await readUpTo(this.response.body, this.#maxBytes ?? Infinity)
    if (body === undefined) return undefined
    const { status, statusText, headers } = this.response
    this.response = new Response(mayHaveBody(status) ? body : null, { status, statusText, headers })
    return { status, headers: [...headers] as Header[], body }
  }
}

export function incomingOf<R>(request: R, raw: Request, readAgain?: () => Promise<ArrayBuffer>): Incoming<R> {
  const { pathname, search } = new URL(raw.url)
  return {
    request,
    method: raw.method,
    path: pathname + search,
    header: (name) => raw.headers.get(name) ?? undefined,
    async body(maxBytes) {
      if (Number(raw.headers.get('content-length') ?? 0) > maxBytes) return 'too large'
      const isRead = raw.bodyUsed || raw.body?.locked === true
      const read = isRead ? readAgain : async () => readUpTo(raw.clone().body, maxBytes)
      if (read === undefined) return 'unread'
      const body = await read()
      if (body === undefined || body.byteLength > maxBytes) return 'too large'
      return checkNesting(new Uint8Array(body), (name) => raw.headers.get(name) ?? undefined)
    },
  }
}

/** All of a stream; undefined, and the stream is ended, where it is longer. */
async function readUpTo(
  stream: ReadableStream<Uint8Array> | null,
  maxBytes: number,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (stream === null) return new Uint8Array()
  const chunks: Uint8Array[] = []
  let size = 0
  const reader = stream.getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return new Uint8Array(Buffer.concat(chunks))
    size += value.byteLength
    if (size > maxBytes) {
      // Not awaited: a copy's end waits for the original's, which is not read.
      reader.cancel().catch(() => undefined)
      return undefined
    }
    chunks.push(value)
  }
}

function responseOf({ status, headers, body }: Answer): Response {
  return new Response(mayHaveBody(status) ? new Uint8Array(body) : null, {
    status,
    headers: headers.map(([name, value]): [string, string] => [name, value]),
  })
}

export function mayHaveBody(status: number): boolean {
  return status !== 204 && status !== 205 && status !== 304
}
