import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { FetchedEvent, headersFault } from './event.ts'
import { Generations } from './generations.ts'

/** The event as it is read from a table in which `headers` stands as that JSON text. */
function withHeaders(headers: string): FetchedEvent {
  const values = { topic: 'trades', key: 'P-1', seq: 1, id: 'e', position: 1, enqueuedMs: 0, json: '{}', hex: null }
  const under = { fence: 1n, history: 'h', generations: new Generations([]) }
  return new FetchedEvent({ ...values, headers, tombstone: undefined, unreadableBytes: undefined }, under)
}

const SPACE = fc.constantFrom('', ' ', '\n\t ')
const TEXT = fc.oneof(fc.string(), fc.constantFrom('"', '\\', '"}', '\\"', '","a":1', '\u2028', '😀'))
/** Objects mostly of text, written with white space where JSON allows it. As in jsonb, no name is there twice. */
const OBJECT = fc
  .uniqueArray(fc.tuple(SPACE, TEXT, SPACE, fc.oneof({ weight: 9, arbitrary: TEXT }, fc.jsonValue()), SPACE), {
    maxLength: 6,
    selector: ([, name]) => name,
  })
  .map((entries) => {
    const parts = entries.map(
      ([a, name, b, value, c]) => `${a}${JSON.stringify(name)}${b}:${c}${JSON.stringify(value)}${a}`,
    )
    return `{${parts.join(',')}}`
  })

describe('the headers of an event that is read', () => {
  it('are refused exactly if parsing shows a value that is not text', () => {
    const refusesExactly = (json: string): void => {
      expect(withHeaders(json).fault).toBe(headersFault(JSON.parse(json) as unknown))
    }
    fc.assert(fc.property(OBJECT, refusesExactly), { numRuns: 2000 })
    fc.assert(fc.property(fc.json(), refusesExactly), { numRuns: 500 })
  })

  it('are checked however long they are', () => {
    const long = 'x'.repeat(2_000_000)
    expect(withHeaders(JSON.stringify({ long })).fault).toBeUndefined()
    expect(withHeaders(JSON.stringify({ long, number: 1 })).fault).toContain('"number" is not text')
  })
})
