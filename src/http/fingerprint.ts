import { createHash } from 'node:crypto'
import { InvalidOption } from '../errors.ts'
import { key, type Key } from '../locks/index.ts'

/** SHA-256 over method, path and body; the first two hold no zero byte, so no two requests give the same bytes. */
export function fingerprintOf(method: string, path: string, body: Uint8Array): string {
  return createHash('sha256').update(`${method.toUpperCase()}\0${path}\0`).update(body).digest('hex')
}

/** What an idempotency key is locked and leased by. A hash: the names of locks are shown, and a key may be long. */
export function lockKeyOf(scope: string, idempotencyKey: string): Key {
  return key`Idempotency:${createHash('sha256').update(`${scope}\0${idempotencyKey}`).digest('hex')}`
}

/** A body that a parser has read already. JSON with sorted keys: the same values in another order are the same request. */
export function bytesOfParsed(body: unknown): Uint8Array {
  if (body === undefined || body === null) return new Uint8Array()
  if (typeof body === 'string') return Buffer.from(body)
  if (body instanceof Uint8Array) return body
  return Buffer.from(JSON.stringify(body, sorted))
}

function sorted(_name: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) {
    // A Map, a form with files: as JSON all of them look alike, and another body would pass for the same.
    throw new InvalidOption('The parsed body of a request holds what JSON does not.', {
      advice: 'Give idempotent() the option `body`, with the bytes that tell requests apart.',
    })
  }
  // fromEntries, not assignment: a key may be called __proto__.
  return Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)))
}
