import { Socket } from 'node:net'
import type { PhysicalConnection, PostgresJs } from './postgresJsClient.ts'

/**
 * Sees to it that a connection of postgres.js sends again after it has closed and is opened again.
 *
 * postgres.js collects what it writes, and an immediate flushes that to the socket. When the connection closes or is terminated before, it
 * clears the immediate, and keeps both what it collected and the mark that an immediate is to come. From then on it never flushes: not even
 * the first message of its next connect is sent, and each connect times out. A socket closes between a write and its flush where the write
 * was made by an immediate, or as the reaction to another socket that closed in the same turn of the event loop: typically when a server,
 * or a proxy in front of it, closes all connections at once.
 *
 * So the function that flushes is learned from the first query of a connection, and called when a new socket is there and has not sent
 * anything: it writes the remains, which go nowhere, and removes the mark.
 */
export function keepWriting(physical: PhysicalConnection, sql: PostgresJs): void {
  const { execute, connect } = physical
  const options = sql.options as { readonly socket?: unknown }
  let flush: (() => unknown) | undefined
  physical.execute = (query) => {
    const schedule = globalThis.setImmediate
    // Only during this call. The write is the last thing that it does.
    const learn = (callback: () => void, ...given: []): NodeJS.Immediate => {
      flush = callback
      return schedule(callback, ...given)
    }
    try {
      globalThis.setImmediate = learn as typeof setImmediate
      return execute(query)
    } finally {
      globalThis.setImmediate = schedule
      if (flush !== undefined) physical.execute = execute
    }
  }
  physical.connect = (query) => {
    // A socket of the caller's making is written to as soon as it is there.
    if (flush === undefined || options.socket !== undefined) return connect(query)
    const remains = flush
    const schedule = globalThis.setTimeout
    // Only during this call, which schedules the connect.
    const scheduled = (open: () => unknown, ms: number): unknown =>
      schedule(() => void openAndDiscard(open, remains), ms)
    try {
      globalThis.setTimeout = scheduled as unknown as typeof setTimeout
      connect(query)
    } finally {
      globalThis.setTimeout = schedule
    }
  }
}

async function openAndDiscard(open: () => unknown, flush: () => unknown): Promise<void> {
  await open()
  discard(flush)
}

/** Flushes while no socket takes what is written. */
function discard(flush: () => unknown): void {
  const write = Object.getOwnPropertyDescriptor(Socket.prototype, 'write')
  try {
    // Only during this call.
    Object.defineProperty(Socket.prototype, 'write', { value: () => true, configurable: true, writable: true })
    flush()
  } catch {
    // There is no socket. The connect has failed.
  } finally {
    if (write === undefined) Reflect.deleteProperty(Socket.prototype, 'write')
    else Object.defineProperty(Socket.prototype, 'write', write)
  }
}
