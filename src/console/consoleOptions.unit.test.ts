import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { InvalidOptionError } from '../index.ts'
import { planConsole } from './consoleOptions.ts'

describe('base', () => {
  test.each([
    ['/', '/'],
    ['/console', '/console/'],
    ['/console/', '/console/'],
    ['/a/b.c/~d-e_f', '/a/b.c/~d-e_f/'],
    ['/...', '/.../'],
  ])('mounts %s at %s', (base, path) => {
    expect(planConsole({ base }).base).toBe(path)
  })

  test.each(['', 'a', '//', '/a//', '/a//b', '/.', '/a/..', '/a/../b', '/a b', '/a;b', '/é', '/%2e%2e', '/a\n'])(
    'refuses %j',
    (base) => {
      expect(() => planConsole({ base })).toThrow(InvalidOptionError)
    },
  )

  // Ended from outside: one that takes exponential time would never come back.
  test.each([`/${'a'.repeat(60)}!`, `/${'a/'.repeat(400)}!`, `/${'a'.repeat(1_000_000)}!`])(
    'rejects a long one without trying every way to divide it',
    (base) => {
      const check = (): boolean => {
        expect(() => planConsole({ base })).toThrow(InvalidOptionError)
        return true
      }
      expect(runInNewContext('check()', { check }, { timeout: 20_000 })).toBe(true)
    },
  )
})
