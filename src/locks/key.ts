import { InvalidKeyError } from '../errors.ts'

/**
 * The name of a concept: `Operation:resource`, `Operation:res1:res2`, `Namespace:global`. A generic label such as `lock`, or a
 * plain `string`, does not compile.
 */
export type Key = `${string}:${string}`

/** What may stand in a part of a key. */
export type KeyPart = string | number | bigint

/** Long enough for any name that people read; short enough for an index, a log line and a lock list. */
export const MAX_KEY_BYTES = 512

/** What a forgotten value turns into inside a template: every such call would wait for every other. */
const FORGOTTEN = new Set(['undefined', 'null', 'NaN', '[object Object]', '[object Promise]'])

/** Nothing to complain of: short, plain, and no segment can be a forgotten value, because each begins with a digit. */
const PLAIN = /^\w{1,100}(?::\d[\w-]{0,40}){1,5}$/

/** Templates that were checked: a call of `key` passes the same list of strings every time. */
const checkedTemplates = new WeakSet<object>()

/** What `escapePart` makes of a percent sign and of a colon. */
const ESCAPED = /%(?:25|3A)/

/**
 * Builds a key from a template and escapes colons in its parts, so that two different lists of parts never give the same key. Each
 * part fills a whole segment between colons; anything else is refused.
 *
 * @example
 * key`Transfer:${accountId}`            // Transfer:42
 * key`Position:${symbol}:${exchange}`   // a symbol "A:B" becomes A%3AB
 */
export function key(strings: TemplateStringsArray, ...parts: KeyPart[]): Key {
  if (!checkedTemplates.has(strings)) {
    checkLiterals(strings)
    checkedTemplates.add(strings)
  }
  let text = strings[0] ?? ''
  parts.forEach((part, index) => {
    text += escapePart(part) + (strings[index + 1] ?? '')
  })
  return checkKey(text)
}

/** Refuses a template in which a part does not fill a whole segment. `strings` is what is around the parts. */
export function checkLiterals(strings: readonly string[]): void {
  const last = strings.length - 1
  const whole = strings.every((text, index) => {
    const begins = index === 0 || text.startsWith(':') || (index === last && text === '')
    const ends = index === last || text.endsWith(':') || (index === 0 && text === '')
    return begins && ends
  })
  if (!whole) {
    throw new InvalidKeyError(
      `A part of the key ${strings.join('${…}')} does not fill a whole segment: other parts could give the same key.`,
      { advice: 'Put colons around each part: key`Position:${symbol}:${exchange}`.' },
    )
  }
  if (strings.some((text) => ESCAPED.test(text))) {
    throw new InvalidKeyError(
      `The key ${strings.join('${…}')} has %25 or %3A in its text: a part could give the same key.`,
      {
        advice: 'Pass it as a part: key`Position:${symbol}`.',
      },
    )
  }
}

function escapePart(part: unknown): string {
  if (typeof part !== 'string' && typeof part !== 'number' && typeof part !== 'bigint') {
    throw new InvalidKeyError(`A part of the key is ${part === null ? 'null' : `of type ${typeof part}`}.`, {
      advice: 'Pass a string, a number or a bigint.',
    })
  }
  if (typeof part !== 'string') return String(part)
  if (part === '') {
    throw new InvalidKeyError('A part of the key is empty.', {
      advice: 'Check the value before it is put into the key.',
    })
  }
  return part.replaceAll('%', '%25').replaceAll(':', '%3A')
}

/** Refuses what cannot name a concept. Nothing has been sent when it throws. */
export function checkKey(candidate: unknown): Key {
  if (typeof candidate !== 'string') {
    throw new InvalidKeyError(`A key must be a string, not ${candidate === null ? 'null' : typeof candidate}.`, {
      advice: 'Write `Operation:resource`, for example key`Transfer:${id}`.',
    })
  }
  const complaint = complaintAbout(candidate)
  if (complaint !== undefined) {
    const shown = candidate.length > 80 ? `${candidate.slice(0, 80)}…` : candidate
    throw new InvalidKeyError(`The key ${JSON.stringify(shown)} ${complaint}.`, {
      advice: adviceFor(candidate),
      keys: [shown],
    })
  }
  return candidate as Key
}

/** Something that there is once has no resource to name: a counter of the whole system, for example. */
function adviceFor(text: string): string {
  const [operation = ''] = text.split(':')
  const nameable = /^\w{1,100}:?$/.test(text)
  const global = nameable ? ` If there is only one of it, write \`${operation}:global\`.` : ''
  return `Write \`Operation:resource\`, for example key\`Transfer:\${id}\`.${global}`
}

function complaintAbout(text: string): string | undefined {
  if (PLAIN.test(text)) return undefined
  if (text === '') return 'is empty'
  const [operation = '', ...resources] = text.split(':')
  if (resources.length === 0) return 'is too generic: it names no resource'
  if (operation.trim() === '') return 'has no operation before the first colon'
  if (resources.every((part) => part.trim() === '')) return 'has no resource after the first colon'
  const forgotten = resources.find((part) => FORGOTTEN.has(part))
  if (forgotten !== undefined)
    return `has a forgotten value in it (${forgotten}): every such call would wait for every other`
  if (text.includes('\0')) return 'has a NUL byte, which PostgreSQL cannot store'
  if (!text.isWellFormed()) return 'has half a surrogate pair: it is not valid Unicode'
  const bytes = Buffer.byteLength(text)
  if (bytes > MAX_KEY_BYTES) return `has ${bytes} bytes, more than ${MAX_KEY_BYTES}`
  return undefined
}
