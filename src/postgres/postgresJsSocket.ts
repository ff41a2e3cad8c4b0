import { Readable } from 'node:stream'
import type { PhysicalConnection } from './postgresJsClient.ts'

/** A server that is there closes its side much sooner. */
const CLOSE_MS = 100

/**
 * Closes a connection of postgres.js, also if the server does not answer. Its `terminate()` says goodbye and waits for the server to close, which
 * on a dead network takes until TCP gives up: so long the place in the pool is taken (porsager/postgres#1089).
 */
export function closeConnection(physical: PhysicalConnection, whenClosed?: () => void): void {
  const { onclose } = physical
  let closed = false
  physical.onclose = (error) => {
    closed = true
    onclose?.(error)
    whenClosed?.()
  }
  physical.terminate()
  setTimeout(() => {
    if (!closed) destroySocket(physical)
  }, CLOSE_MS).unref()
}

/**
 * Destroys the socket of a connection that was terminated. postgres.js does not show it, but takes its listeners off it once more when
 * it is terminated once more: all in this very moment, so no other code ever sees the function that is in the way.
 */
function destroySocket(physical: PhysicalConnection): void {
  let socket: Readable | undefined
  const method = Object.getOwnPropertyDescriptor(Readable.prototype, 'removeListener')
  if (typeof method?.value !== 'function') return
  const seeing = new Proxy(method.value as (...given: unknown[]) => unknown, {
    apply(removeListener, self, given) {
      socket ??= self as Readable
      return Reflect.apply(removeListener, self, given)
    },
  })
  try {
    Object.defineProperty(Readable.prototype, 'removeListener', { ...method, value: seeing })
    physical.terminate()
  } finally {
    Object.defineProperty(Readable.prototype, 'removeListener', method)
  }
  socket?.destroy()
}
