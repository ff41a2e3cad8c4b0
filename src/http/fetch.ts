import { noAnswer } from './storedAnswers.ts'
import type { Answer, Draft, Guard, Header, Incoming } from './guard.ts'

/** What `honoHandler` needs of Hono's context. */
export interface HonoContext {
  readonly req: { readonly raw: Request; arrayBuffer(): Promise<ArrayBuffer> }
}

/**
 * For servers whose handlers take a `Request` and give a `Response`.
 *
 * @example
 * const handle = fetchHandler(exclusive(lockstep, { key: instanceOf }), async (request, lease) => Response.json(await next(lease)))
 */
export function fetchHandler<Given>(
  guard: Guard<Request, Given>,
  handler: (request: Request, given: Given) => Response | Promise<Response>,
): (request: Request) => Promise<Response> {
  return (request) =>
    respond(guard, incomingOf(request, request), (given) =>
      // Each attempt reads the body anew.
      handler(guard.wholeUpTo === undefined ? request : request.clone(), given),
    )
}

/**
 * For Hono: the handler gets the context, and what the guard gives.
 *
 * @example
 * app.post('/instances/:id/next', honoHandler(oneAtATime, async (c, lease) => c.json(await next(lease))))
 */
export function honoHandler<Context extends HonoContext, Given>(
  guard: Guard<Context, Given>,
  handler: (context: Context, given: Given) => Response | Promise<Response>,
): (context: Context) => Promise<Response> {
  return (context) =>
    // Hono keeps a body that was read through the context: middleware before this one may have read it.
    respond(
      guard,
      incomingOf(context, context.req.raw, () => context.req.arrayBuffer()),
      (given) => handler(context, given),
    )
}

async function respond<R, Given>(
  guard: Guard<R, Given>,
  incoming: Incoming<R>,
  handler: (given: Given) => Response | Promise<Response>,
): Promise<Response> {
  let held: HeldResponse | undefined
  const verdict = await guard.handle(incoming, async (given) => {
    held = new HeldResponse(await handler(given), guard.wholeUpTo)
    return held
  })
  return verdict === 'own' ? (held as HeldResponse).response : responseOf(verdict)
}

class HeldResponse implements Draft {
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

function incomingOf<R>(request: R, raw: Request, readAgain?: () => Promise<ArrayBuffer>): Incoming<R> {
  const { pathname, search } = new URL(raw.url)
  return {
    request,
    method: raw.method,
    path: pathname + search,
    header: (name) => raw.headers.get(name) ?? undefined,
    async body(maxBytes) {
      if (Number(raw.headers.get('content-length') ?? 0) > maxBytes) return 'too large'
      if (raw.bodyUsed) return readAgain === undefined ? 'unread' : new Uint8Array(await readAgain())
      return (await readUpTo(raw.clone().body, maxBytes)) ?? 'too large'
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
      // Not awaited: a copy's end waits for the original's, which nobody reads.
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

function mayHaveBody(status: number): boolean {
  return status !== 204 && status !== 205 && status !== 304
}
