import type { IncomingMessage, ServerResponse } from 'node:http'
import { type ConsoleLockstep, type ConsoleOptions, planConsole } from './consoleOptions.ts'
import { nodeListener } from './nodeListener.ts'
import type { RequestSource } from './origin.ts'
import { Site } from './site.ts'

/** A console that answers requests. */
export interface Console extends AsyncDisposable {
  /** For servers whose handlers take a `Request` and give a `Response`, and leave its path as it came. */
  readonly fetch: (request: Request) => Promise<Response>
  /** For node:http, and for Express under the path of `base`. */
  readonly listener: (request: IncomingMessage, response: ServerResponse) => void
  /** Ends the streams of all who look. The Lockstep stays the caller's to close. */
  readonly close: () => Promise<void>
}

/**
 * Makes the console of a Lockstep: a page, and what it asks for. Nothing is asked of the database without a viewer.
 *
 * @example
 * const site = createConsole(lockstep)
 * createServer(site.listener).listen(8400, '127.0.0.1')
 */
export function createConsole(lockstep: ConsoleLockstep, options: ConsoleOptions = {}): Console {
  const site = new Site(lockstep, planConsole(options))
  const handle = (request: Request, source: RequestSource): Promise<Response> => site.handle(request, source)
  const close = (): Promise<void> => site.close()
  return {
    // A router may pass more than the request.
    fetch: (request) => handle(request, { address: undefined }),
    listener: nodeListener(handle),
    close,
    [Symbol.asyncDispose]: close,
  }
}
