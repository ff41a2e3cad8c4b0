import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { InvalidKeyError } from '../errors.ts'
import { checkKey, key, type KeyPart, MAX_KEY_BYTES } from './key.ts'

describe('a key', () => {
  test.each([
    'Transfer:42',
    'Position:BTC-USD:kraken',
    'Ledger:global',
    'Überweisung:ß:日本',
    'Order:o\'brien\\"',
    'Emoji:👩‍👩‍👧‍👦',
    'A::b',
    `A:${'x'.repeat(MAX_KEY_BYTES - 2)}`,
  ])('accepts %j', (candidate) => {
    expect(checkKey(candidate)).toBe(candidate)
  })

  test.each([
    ['empty', ''],
    ['a generic label', 'lock'],
    ['nothing but a colon', ':'],
    ['nothing but colons', '::'],
    ['no resource', 'a:'],
    ['a blank resource', 'a: '],
    ['no operation', ':b'],
    ['a blank operation', ' :b'],
    ['NUL', 'Transfer:a\0b'],
    ['half a surrogate pair', 'Transfer:\ud83d'],
    ['the other half', 'Transfer:\ude00x'],
    ['too long', `A:${'x'.repeat(MAX_KEY_BYTES - 1)}`],
    ['too long in UTF-8 only', `A:${'ü'.repeat(MAX_KEY_BYTES / 2)}`],
    ['undefined in a template', `Transfer:${String(undefined)}`],
    ['null in a template', `Transfer:${String(null)}:x`],
    ['NaN in a template', `Transfer:${Number.NaN}`],
    ['an object in a template', 'Transfer:[object Object]'],
    ['a promise in a template', 'Transfer:[object Promise]'],
    ['a number', 42],
    ['undefined', undefined],
    ['null', null],
    ['an object', {}],
    ['a list', ['Transfer:1']],
    ['a String object', Object('Transfer:1')],
  ])('rejects %s', (_, candidate) => {
    expect(() => checkKey(candidate)).toThrow(InvalidKeyError)
  })

  test('names the key in the error, and says what to write', () => {
    const failure = (candidate: unknown): InvalidKeyError => {
      try {
        checkKey(candidate)
      } catch (error) {
        return error as InvalidKeyError
      }
      throw new Error('it was accepted')
    }
    expect(failure('lock')).toMatchObject({ code: 'LOCKSTEP_INVALID_KEY', keys: ['lock'] })
    expect(failure('x'.repeat(5000)).message.length).toBeLessThan(300)
    expect(failure('lock').advice).toContain('Operation:resource')
  })
})

describe('key``', () => {
  test('escapes separators in parts', () => {
    expect(key`Transfer:${42}`).toBe('Transfer:42')
    expect(key`Transfer:${42n}:${'b'}`).toBe('Transfer:42:b')
    expect(key`Position:${'A:B'}:${'50%'}`).toBe('Position:A%3AB:50%25')
    expect(key`Ledger:global`).toBe('Ledger:global')
  })

  test('accepts a part for each whole segment', () => {
    expect(key`${'Transfer'}:${42}`).toBe('Transfer:42')
    expect(key`Transfer:${1}:to:${2}`).toBe('Transfer:1:to:2')
  })

  // Joined by a dash, x-y and z give the same key as x and y-z.
  test.each<[string, () => string]>([
    ['beside a text', () => key`Transfer:from-${1}`],
    ['before a text', () => key`Transfer:${1}-in`],
    ['in two, joined by a text', () => key`Position:${'x-y'}-${'z'}`],
    ['in two without anything between them', () => key`Position:${'x'}${'y'}`],
    ['at the end of the operation', () => key`Transfer${1}:a`],
  ])('rejects a part that stands %s', (_, make) => {
    expect(make).toThrow(InvalidKeyError)
    expect(make).toThrow('whole segment')
    // Not only the first time that the template is met.
    expect(make).toThrow(InvalidKeyError)
  })

  test('rejects a text that reads like an escaped part', () => {
    expect(() => key`Position:A%3AB`).toThrow(InvalidKeyError)
    expect(() => key`Discount:50%25:${1}`).toThrow(InvalidKeyError)
    expect(key`Discount:50%:${1}`).toBe('Discount:50%:1')
  })

  test.each([[undefined], [null], [''], [{}], [Symbol('s')], [true], [Promise.resolve(1)], [Number.NaN]])(
    'rejects %o as a part',
    (part) => {
      expect(() => key`Transfer:${part as KeyPart}`).toThrow(InvalidKeyError)
    },
  )

  /** Any text that may stand in a part, with those characters in it that escaping is about. */
  const part = fc.oneof(
    fc.string({ unit: 'binary', minLength: 1, maxLength: 12 }),
    fc.string({ unit: fc.constantFrom('%', ':', '2', '3', '5', 'A', 'a', ' '), minLength: 1, maxLength: 8 }),
    fc.constantFrom('%3A', '%253A', ':', '%', '::', '%25'),
  )
  const usable = part.filter((text) => !text.includes('\0') && !['undefined', 'null', 'NaN'].includes(text))

  function keyOf(parts: readonly string[]): string {
    const strings = ['T:', ...Array<string>(parts.length - 1).fill(':'), '']
    return key(Object.assign(strings, { raw: strings }), ...parts)
  }

  test('gives different keys for different parts', () => {
    const lists = fc.array(usable, { minLength: 1, maxLength: 4 })
    fc.assert(
      fc.property(lists, lists, (one, other) => {
        const blank = (list: readonly string[]): boolean => list.every((text) => text.trim() === '')
        fc.pre(!blank(one) && !blank(other))
        const same = JSON.stringify(one) === JSON.stringify(other)
        expect(keyOf(one) === keyOf(other)).toBe(same)
      }),
      { numRuns: 2000 },
    )
  })

  test('lets parts be read back from the key', () => {
    fc.assert(
      fc.property(fc.array(usable, { minLength: 1, maxLength: 4 }), (parts) => {
        fc.pre(parts.some((text) => text.trim() !== ''))
        const [, ...read] = keyOf(parts).split(':')
        expect(read.map((text) => text.replaceAll('%3A', ':').replaceAll('%25', '%'))).toEqual(parts)
      }),
      { numRuns: 2000 },
    )
  })
})

test.each([
  ['CardTokenSequence', 'CardTokenSequence:global'],
  ['CardTokenSequence:', 'CardTokenSequence:global'],
])('suggests a key for something that there is once: %s', (candidate, suggested) => {
  expect(() => checkKey(candidate)).toThrow(`write \`${suggested}\``)
})

test.each(['Transfer:undefined', ':b', '', 'two words'])('suggests no global key for %j', (candidate) => {
  expect(() => checkKey(candidate)).not.toThrow('global')
  expect(() => checkKey(candidate)).toThrow('Operation:resource')
})
