import type { ServerResponse } from 'node:http'
import type { Guard } from './guard.ts'
import { HeldResponse } from './heldResponse.ts'
import { incomingOf, type ParsedRequest } from './nodeRequest.ts'

/**
 * For Express 5. The handler's promise is its work: when it ends, the lease is released or the answer stored, and only then is the
 * answer sent. So the handler must not wait for its own answer to be sent. It can listen for `finish`: that comes after the answer.
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
        held.handlerEnded()
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
