import { Readable } from 'node:stream'
import type { PhysicalConnection } from './postgresJsPool.ts'

/** A server that is there closes its side much sooner. */
const CLOSE_MS = 100

/**
 * Closes a connection of postgres.js, also where nobody answers. Its `terminate()` says goodbye and waits for the server to close, which
 * on a dead network takes until TCP gives up: so long the place in the pool is taken (porsager/postgres#1089).
 */
export function closeConnection(physical: PhysicalConnection): void {
  const { onclose } = physical
  let closed = false
  physical.onclose = (error) => {
    closed = true
    onclose?.(error)
  }
  physical.terminate()
  setTimeout(() => {
    if (!closed) destroySocket(physical)
  }, CLOSE_MS).unref()
}

/**
 * Destroys the socket of a connection that was terminated. postgres.js does not show it, but takes its listeners off it once more when
 * it is terminated once more: all in this very moment, so nobody else ever sees the function that is in the way.
 */
function destroySocket(physical: PhysicalConnection): void {
  let socket: Readable | undefined
  const { removeListener } = Readable.prototype
  Readable.prototype.removeListener = function (this: Readable, ...given: Parameters<typeof removeListener>) {
    socket ??= this
    return removeListener.apply(this, given)
  }
  try {
    physical.terminate()
  } finally {
    Readable.prototype.removeListener = removeListener
  }
  socket?.destroy()
}
