import { describe, expect, test } from 'vitest'
import { checkOptions, type OptionNames } from './checkOptions.ts'
import { InvalidOptionError } from './errors.ts'

interface Example {
  readonly lock?: string
  readonly waitMs?: number
  readonly ttlMs?: number
  readonly signal?: AbortSignal
}

const EXAMPLE: OptionNames<Example> = { lock: 'never undefined', waitMs: true, ttlMs: true, signal: true }

function refusal(options: unknown): string {
  try {
    checkOptions('example()', options, EXAMPLE)
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidOptionError)
    return (error as Error).message
  }
  throw new Error('It was accepted.')
}

describe('accepts', () => {
  test.each<[string, object]>([
    ['no options', {}],
    ['every option', { lock: 'A:1', waitMs: 0, ttlMs: 5, signal: new AbortController().signal }],
    ['undefined for the default', { waitMs: undefined, ttlMs: undefined, signal: undefined }],
    ['an object without a prototype', Object.assign(Object.create(null) as object, { lock: 'A:1' })],
    [
      'an instance of a class',
      new (class {
        lock = 'A:1'
        get waitMs(): number {
          return 5
        }
      })(),
    ],
  ])('%s', (_, options) => {
    expect(() => checkOptions('example()', options, EXAMPLE)).not.toThrow()
  })

  test('accepts properties that a library adds to every object', () => {
    Reflect.defineProperty(Object.prototype, 'shim', { value: 1, enumerable: true, configurable: true })
    let thrown: unknown
    try {
      checkOptions('example()', { lock: 'A:1' }, EXAMPLE)
    } catch (error) {
      thrown = error
    }
    Reflect.deleteProperty(Object.prototype, 'shim')
    expect(thrown).toBeUndefined()
  })
})

describe('refuses', () => {
  test.each<[string, object, string]>([
    ['a letter too many', { locks: 'A:1' }, 'Unknown option "locks" of example(). Did you mean "lock"?'],
    ['a name without its unit', { ttl: 5 }, 'Unknown option "ttl" of example(). Did you mean "ttlMs"?'],
    ['an unknown name without a value', { locks: undefined }, 'Did you mean "lock"?'],
    ['a name like no other', { topics: [] }, 'The options are lock, waitMs, ttlMs, signal.'],
    ['an inherited name', Object.create({ locks: 'A:1' }) as object, 'Did you mean "lock"?'],
    ['a key that is undefined', { lock: undefined }, 'The option "lock" of example() is undefined.'],
    ['a signal in place of the options', new AbortController().signal, 'Unknown option "aborted"'],
    ['a list', ['A:1'], 'Unknown option "0"'],
  ])('%s', (_, options, message) => {
    expect(refusal(options)).toContain(message)
  })

  test.each([
    [undefined, 'undefined'],
    [null, 'null'],
    ['A:1', 'a string'],
    [() => undefined, 'a function'],
  ])('%s for the options', (options, kind) => {
    expect(refusal(options)).toBe(
      `The options of example() are ${kind}, not an object. The options are lock, waitMs, ttlMs, signal.`,
    )
  })
})
