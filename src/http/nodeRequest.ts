import type { IncomingHttpHeaders } from 'node:http'
import { bytesOfParsed, checkNesting, type UnusableBody } from './fingerprint.ts'
import type { Incoming } from './guard.ts'

/** What Express and Fastify requests have in common. */
export interface ParsedRequest {
  readonly method: string
  readonly url: string
  /** Where a router has cut the mount's path off `url`. */
  readonly originalUrl?: string
  readonly headers: IncomingHttpHeaders
  /** As a parser left it. */
  readonly body?: unknown
  /** The bytes, where something has kept them. */
  readonly rawBody?: unknown
}

export function incomingOf<R extends object>(request: R & ParsedRequest): Incoming<R> {
  const { headers } = request
  return {
    request,
    method: request.method,
    path: request.originalUrl ?? request.url,
    header(name) {
      const value = headers[name]
      return Array.isArray(value) ? value.join(', ') : value
    },
    body: async (maxBytes) => Promise.resolve(bodyOf(request, maxBytes)),
  }
}

function bodyOf({ headers, rawBody, body }: ParsedRequest, maxBytes: number): Uint8Array | UnusableBody {
  const declared = Number(headers['content-length'] ?? 0)
  if (declared > maxBytes) return 'too large'
  const kept = rawBody ?? body
  // Two different bodies that were not read would look the same.
  if (kept === undefined && (declared > 0 || headers['transfer-encoding'] !== undefined)) return 'unread'
  const bytes = bytesOfParsed(kept, maxBytes)
  if (typeof bytes === 'string') return bytes
  return bytes.byteLength > maxBytes ? 'too large' : checkNesting(bytes, (name) => headers[name])
}
