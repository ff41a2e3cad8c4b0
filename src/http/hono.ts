import { HeldFetchResponse, incomingOf, mayHaveBody } from './fetch.ts'
import type { Answer, Guard } from './guard.ts'
import { valuesByName } from './nodeResponse.ts'

/** What `honoHandler` needs of Hono's context. */
export interface HonoContext {
  readonly req: { readonly raw: Request; arrayBuffer(): Promise<ArrayBuffer> }
  get res(): Response
  set res(response: Response | undefined)
  finalized: boolean
  status(code: number): void
  header(name: string, value?: string, options?: { append?: boolean }): void
  newResponse(body: Uint8Array<ArrayBuffer> | null, status?: number): Response
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
  return async (context) => {
    // Hono keeps a body that was read through the context: middleware before this one may have read it.
    const incoming = incomingOf(context, context.req.raw, () => context.req.arrayBuffer())
    let before: ContextBefore | undefined
    let held: HeldHonoResponse | undefined
    try {
      const verdict = await guard.handle(incoming, async (given) => {
        if (before === undefined) before = new ContextBefore(context)
        else before.putBack()
        held = new HeldHonoResponse(context, await handler(context, given), guard.wholeUpTo)
        return held
      })
      if (verdict === 'own') return (held as HeldHonoResponse).response
      before?.putBack()
      return answerWith(context, verdict)
    } catch (error) {
      before?.putBack()
      throw error
    }
  }
}

class HeldHonoResponse extends HeldFetchResponse {
  readonly #context: HonoContext

  constructor(context: HonoContext, response: Response, maxBytes: number | undefined) {
    super(response, maxBytes)
    this.#context = context
  }

  /** With the headers that Hono would add after the handler: the answer is stored as it is sent. */
  override async whole(): Promise<Answer | undefined> {
    if (this.response instanceof Response) {
      this.#context.res = this.response
      this.response = this.#context.res
    }
    const answer = await super.whole()
    this.#context.res = undefined
    this.#context.res = this.response
    return answer
  }
}

/**
 * A context as middleware has left it to the handler. What `c.header()` sets stands in one of two places: in the response that is in the
 * making, once a middleware has asked for `c.res`; before that in a list for the response that the handler will make.
 */
class ContextBefore {
  readonly #context: HonoContext
  readonly #status: number
  readonly #headers: readonly (readonly [string, string])[]
  readonly #inResponse: boolean

  constructor(context: HonoContext) {
    this.#context = context
    const { status, headers } = context.newResponse(null)
    this.#status = status
    this.#headers = [...headers]
    // Assigning a response merges the headers of the one in the making into it: they tell whether there is one.
    context.res = new Response(null)
    this.#inResponse = [...context.res.headers].length > 0
    this.putBack()
  }

  putBack(): void {
    const context = this.#context
    context.res = undefined
    context.finalized = false
    // A copy: in Hono's server for Node these are the very headers that are taken away.
    const names = [...context.newResponse(null).headers.keys()]
    for (const name of names) context.header(name, undefined)
    context.status(this.#status)
    if (this.#inResponse) {
      context.res = new Response(null, {
        headers: this.#headers.map(([name, value]): [string, string] => [name, value]),
      })
      context.finalized = false
    } else {
      for (const [name, value] of this.#headers) context.header(name, value, { append: true })
    }
  }
}

/** Through the context: what middleware has set before stays, and an answer's own header replaces it. */
function answerWith(context: HonoContext, answer: Answer): Response {
  for (const [name, values] of valuesByName(answer)) {
    for (const [index, value] of values.entries()) context.header(name, value, { append: index > 0 })
  }
  const { status, body } = answer
  return context.newResponse(mayHaveBody(status) ? new Uint8Array(body) : null, status)
}
