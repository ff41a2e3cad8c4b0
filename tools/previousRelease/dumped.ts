/** What the dump of the previous release has: `makeDump.ts` writes it, and the test compares what this release makes of it. */
export const DUMP_FILE = new URL('dump.sql', import.meta.url)

export const TOPIC = 'dumped'
/** Of these all three events were delivered, and one more was not. */
export const HALF_DELIVERED = ['a', 'b'] as const
/** Its first event was refused: the stream waits for an operator. */
export const BLOCKED = 'blocked'
export const DELIVERED_EACH = 3
export const CONSUMER = 'dumped'
export const RELEASED = 'Dumped:released'
/** Its holder has ended without a word. */
export const ABANDONED = 'Dumped:abandoned'
export const LOCKED = 'Dumped:locked'
export const PREFIX_OFF = 'DumpedOff'
export const IDEMPOTENCY_KEY = 'dumped-1'
export const SCOPE = 'dump'
export const BYTES = Buffer.from([0, 1, 254, 255])
export const HEADERS = { 'trace-id': 'dumped' }

export function dumpedRequest(): Request {
  const headers = { 'idempotency-key': IDEMPOTENCY_KEY }
  return new Request('http://localhost/dumped', { method: 'POST', headers, body: '{}' })
}
