import { describe, expect, test } from 'vitest'
import { InvalidOptionError } from '../errors.ts'
import { bytesOfParsed, isNestedTooDeeply, MAX_DEPTH } from './fingerprint.ts'

const ENOUGH = 1024 * 1024

function textOf(body: unknown, maxBytes = ENOUGH): unknown {
  const bytes = bytesOfParsed(body, maxBytes)
  return typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString()
}

function nested(depth: number): string {
  return '['.repeat(depth) + ']'.repeat(depth)
}

/** As stored fingerprints were made before: what is written must not change, or a retry during a deploy would be refused. */
function asBefore(body: unknown): string {
  return JSON.stringify(body, (_name, value: unknown) =>
    typeof value !== 'object' || value === null || Array.isArray(value)
      ? value
      : Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1))),
  )
}

describe('a parsed body', () => {
  test.each<[string, unknown]>([
    ['numbers', [0, -0, 1.5, 1e21, -1e-7, NaN, Infinity]],
    ['texts', ['', 'Grüße', '"\\\n\u2028\0', '\ud800']],
    ['nothing', [null, undefined, true, false]],
    ['a function and a symbol', { a: () => 1, b: Symbol('b'), c: [() => 1, Symbol('c')] }],
    ['keys in any order', { b: { z: 1, y: [{ d: 1, c: 2 }] }, a: 2, '': 0, __: 1 }],
    ['keys that are numbers', { b: 1, 10: 'ten', 9: 'nine', '01': 'one', a: 2 }],
    ['__proto__', JSON.parse('{"b":1,"__proto__":{"d":1,"c":2},"a":3}')],
    ['undefined members', { a: undefined, b: 1, c: undefined }],
    ['empty ones', [{}, [], [[]], { a: {} }]],
    ['a date', { at: new Date(0), wrong: [new Date(0)] }],
    ['toJSON', { a: { toJSON: (name: string) => ({ name, b: 1, a: 2 }) }, gone: { toJSON: () => undefined } }],
    ['a buffer', { file: Buffer.from('ab') }],
    ['objects without a prototype', Object.assign(Object.create(null) as object, { b: 1, a: 2 })],
    ['a sparse list', Object.assign([], { 2: 'two' })],
    ['a number alone', 7],
    ['false', false],
  ])('is written as before: %s', (_name, body) => {
    expect(textOf(body)).toBe(asBefore(body))
  })

  test('is empty, a text or bytes', () => {
    expect([undefined, null, 'text', Buffer.from('bytes')].map((body) => textOf(body))).toEqual([
      '',
      '',
      'text',
      'bytes',
    ])
  })

  test('that is nested too deeply is rejected, without overflowing the stack', () => {
    expect(textOf(JSON.parse(nested(MAX_DEPTH)))).toBe(nested(MAX_DEPTH))
    for (const depth of [MAX_DEPTH + 1, 100_000]) expect(textOf(JSON.parse(nested(depth)))).toBe('too deep')
    let object: object = {}
    for (let depth = 0; depth < 100_000; depth++) object = { object }
    expect(textOf(object)).toBe('too deep')
  })

  test('that contains itself is rejected', () => {
    const circle: unknown[] = []
    circle.push(circle)
    expect(textOf(circle)).toBe('too deep')
    const twice = (depth: number): unknown => {
      let value: unknown = 1
      for (let level = 0; level < depth; level++) value = [value, value]
      return value
    }
    expect(textOf(twice(100))).toBe('too large')
  })

  test('that is too large is not written to its end', () => {
    expect(textOf({ text: 'x'.repeat(100) }, 50)).toBe('too large')
    expect(textOf(['ü'.repeat(20)], 44)).toBe(`["${'ü'.repeat(20)}"]`)
    expect(textOf(['ü'.repeat(20)], 43)).toBe('too large')
  })

  test('that JSON cannot hold is an error of the program', () => {
    for (const wrong of [new Map(), new URLSearchParams(), { files: new Set() }, [1n], [Object(1)]]) {
      expect(() => textOf(wrong)).toThrow(InvalidOptionError)
    }
  })
})

describe('the bytes of a JSON body', () => {
  const deep = (text: string): boolean => isNestedTooDeeply(Buffer.from(text))

  test('are nested too deeply or not, whatever stands in their strings', () => {
    expect(deep(nested(MAX_DEPTH))).toBe(false)
    expect(deep(nested(MAX_DEPTH + 1))).toBe(true)
    expect(deep('{"a":'.repeat(MAX_DEPTH + 1) + '1' + '}'.repeat(MAX_DEPTH + 1))).toBe(true)
    expect(deep(JSON.stringify({ text: '['.repeat(3 * MAX_DEPTH) }))).toBe(false)
    expect(deep(JSON.stringify([`\\"${'{'.repeat(3 * MAX_DEPTH)}`, '\\']))).toBe(false)
    expect(deep(`["\\\\",${nested(MAX_DEPTH)}]`)).toBe(true)
    expect(deep('[],'.repeat(3 * MAX_DEPTH))).toBe(false)
  })
})
