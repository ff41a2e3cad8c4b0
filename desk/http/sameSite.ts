import type { MiddlewareHandler } from 'hono'
import { isLoopback } from '../options.ts'
import { ProblemError } from './problem.ts'

const READS = new Set(['GET', 'HEAD', 'OPTIONS'])

/**
 * A desk without a token is open to this machine, and a browser on this machine shows pages of others. What such a page can send is
 * refused: requests under a name of its own that leads here, and requests that change something from another site.
 */
export const onlyThisMachine: MiddlewareHandler = async (c, next) => {
  const { hostname } = new URL(c.req.url)
  if (!isLoopback(hostname.replace(/^\[|\]$/g, ''))) {
    const detail = `Without a token the desk answers under 127.0.0.1 and localhost, not under ${hostname}.`
    return new ProblemError('wrong-host', detail).answer(c)
  }
  if (!READS.has(c.req.method) && c.req.header('sec-fetch-site') === 'cross-site') {
    const detail = 'A page of another site cannot change anything here.'
    return new ProblemError('cross-site', detail).answer(c)
  }
  return next()
}
