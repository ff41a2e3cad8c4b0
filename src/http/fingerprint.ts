import { createHash } from 'node:crypto'
import { InvalidOptionError } from '../errors.ts'
import { key, type Key } from '../locks/index.ts'

/** Why a body has no bytes to identify it by. */
export type UnusableBody = 'too large' | 'too deep' | 'unread'

/** How deep arrays and objects may stand in each other. JSON of people has tens of levels; what has more is meant to overflow a stack. */
export const MAX_DEPTH = 1000

/** SHA-256 over method, path and body; the first two hold no zero byte, so no two requests give the same bytes. */
export function fingerprintOf(method: string, path: string, body: Uint8Array): string {
  return createHash('sha256').update(`${method.toUpperCase()}\0${path}\0`).update(body).digest('hex')
}

/** What an idempotency key is locked and leased by. A hash: the names of locks are shown, and a key may be long. */
export function lockKeyOf(scope: string, idempotencyKey: string): Key {
  return key`Idempotency:${createHash('sha256').update(`${scope}\0${idempotencyKey}`).digest('hex')}`
}

/** A body that a parser has read already. JSON with sorted keys: the same values in another order are the same request. */
export function bytesOfParsed(body: unknown, maxBytes: number): Uint8Array | UnusableBody {
  if (body === undefined || body === null) return new Uint8Array()
  if (typeof body === 'string') return Buffer.from(body)
  if (body instanceof Uint8Array) return body
  return new SortedJson(maxBytes).write(body)
}

/** Bytes as they came, unless they are JSON that is nested too deeply for a parser or a serializer. */
export function checkNesting(
  bytes: Uint8Array,
  header: (name: 'content-type' | 'content-encoding') => string | undefined,
): Uint8Array | UnusableBody {
  const isJson =
    JSON_TYPE.test(header('content-type') ?? '') && (header('content-encoding') ?? 'identity') === 'identity'
  return isJson && isNestedTooDeeply(bytes) ? 'too deep' : bytes
}

/** `application/json`, and all that ends with `+json`. */
const JSON_TYPE = /^\s*[\w!#$&^.+-]+\/(?:[\w!#$&^.+-]+\+)?json\s*(?:;|$)/i

/** Whether a text of JSON is nested too deeply. What is no JSON at all is left to its parser. */
export function isNestedTooDeeply(bytes: Uint8Array): boolean {
  // Each level has two bytes of its own.
  if (bytes.byteLength <= 2 * MAX_DEPTH) return false
  let depth = 0
  let inString = false
  for (let at = 0; at < bytes.byteLength; at++) {
    const byte = bytes[at]
    if (inString) {
      if (byte === BACKSLASH) at++
      else if (byte === QUOTE) inString = false
    } else if (byte === QUOTE) inString = true
    else if (byte === ARRAY || byte === OBJECT) {
      if (++depth > MAX_DEPTH) return true
    } else if (byte === ARRAY_END || byte === OBJECT_END) depth--
  }
  return false
}

const [QUOTE, BACKSLASH, ARRAY, ARRAY_END, OBJECT, OBJECT_END] = [0x22, 0x5c, 0x5b, 0x5d, 0x7b, 0x7d]

/** An array or object that is being written. */
interface Level {
  readonly of: Readonly<Record<string, unknown>> | readonly unknown[]
  /** Undefined for an array. */
  readonly names: readonly string[] | undefined
  at: number
  isEmpty: boolean
}

/** Writes as `JSON.stringify` does, with sorted keys and without recursion: a body of the network decides how deep it goes. */
class SortedJson {
  readonly #maxBytes: number
  readonly #levels: Level[] = []
  readonly #pieces: string[] = []
  #size = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  write(body: unknown): Uint8Array | UnusableBody {
    this.#value('', body)
    for (let level = this.#levels.at(-1); level !== undefined; level = this.#levels.at(-1)) {
      if (this.#size > this.#maxBytes) return 'too large'
      if (this.#levels.length > MAX_DEPTH) return 'too deep'
      this.#next(level)
    }
    return this.#size > this.#maxBytes ? 'too large' : Buffer.from(this.#pieces.join(''))
  }

  /** The next member of an array or object, or its end. */
  #next(level: Level): void {
    const { of, names, at } = level
    if (at >= (names ?? (of as readonly unknown[])).length) {
      this.#levels.pop()
      return this.#piece(names === undefined ? ']' : '}')
    }
    level.at++
    const name = names?.[at] ?? String(at)
    const value = simplified(name, (of as Readonly<Record<string, unknown>>)[name])
    if (names !== undefined && isLeftOut(value)) return
    const comma = level.isEmpty ? '' : ','
    level.isEmpty = false
    this.#piece(names === undefined ? comma : `${comma}${JSON.stringify(name)}:`)
    this.#simple(value)
  }

  #value(name: string, value: unknown): void {
    this.#simple(simplified(name, value))
  }

  #simple(value: unknown): void {
    if (typeof value !== 'object' || value === null) {
      return this.#piece(isLeftOut(value) ? 'null' : JSON.stringify(value))
    }
    if (Array.isArray(value)) {
      this.#levels.push({ of: value, names: undefined, at: 0, isEmpty: true })
      return this.#piece('[')
    }
    // Not only sorted: as the keys of an object, those that are numbers come first. It was written so before.
    const names = Object.keys(
      Object.fromEntries(
        Object.keys(value)
          .toSorted()
          .map((each) => [each, 0]),
      ),
    )
    this.#levels.push({ of: value as Record<string, unknown>, names, at: 0, isEmpty: true })
    this.#piece('{')
  }

  #piece(text: string): void {
    this.#pieces.push(text)
    this.#size += Buffer.byteLength(text)
  }
}

/** A value, array or plain object. */
function simplified(name: string, given: unknown): unknown {
  const value = hasToJson(given) ? given.toJSON(name) : given
  if (typeof value === 'bigint') throw notJson()
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  const prototype: unknown = Object.getPrototypeOf(value)
  // A Map, a form with files: as JSON all of them look alike, and another body would pass for the same.
  if (prototype !== Object.prototype && prototype !== null) throw notJson()
  return value
}

function hasToJson(value: unknown): value is { toJSON(name: string): unknown } {
  return typeof value === 'object' && value !== null && 'toJSON' in value && typeof value.toJSON === 'function'
}

function isLeftOut(value: unknown): boolean {
  return value === undefined || typeof value === 'function' || typeof value === 'symbol'
}

function notJson(): InvalidOptionError {
  return new InvalidOptionError('The parsed body of a request holds what JSON does not.', {
    advice: 'Give idempotent() the option `body`, with the bytes that tell requests apart.',
  })
}
