import { createHash, timingSafeEqual } from 'node:crypto'
import type { MiddlewareHandler } from 'hono'
import { ProblemError } from './problem.ts'

/** Only for clients that show the token. */
export function bearer(token: string): MiddlewareHandler {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
  const wanted = digest(`Bearer ${token}`)
  return async (c, next) => {
    if (!timingSafeEqual(digest(c.req.header('authorization') ?? ''), wanted)) {
      const detail = 'Send the header Authorization: Bearer, and the token that the desk was started with.'
      const refused = new ProblemError('token-missing', detail).answer(c)
      refused.headers.set('www-authenticate', 'Bearer')
      return refused
    }
    return next()
  }
}
