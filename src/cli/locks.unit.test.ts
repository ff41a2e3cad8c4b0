import { describe, expect, test } from 'vitest'
import { interruptGently, untilInterrupted } from './interrupt.ts'
import { Screen } from './screen.ts'
import { terminalOf } from './terminal.ts'
import { formatAge, singleLine } from './formatting.ts'

test.each([
  [undefined, '?'],
  [0, '0 ms'],
  [999, '999 ms'],
  [1000, '1.0 s'],
  [59_999, '59.9 s'],
  [60_000, '1 min 0 s'],
  [3_599_999, '59 min 59 s'],
  [3_600_000, '1 h 0 min'],
  [100 * 3_600_000, '100 h 0 min'],
])('formats %s ms as %s', (ms, expected) => {
  expect(formatAge(ms)).toBe(expected)
})

test('escapes control characters for the terminal', () => {
  expect(singleLine('Key:\u001B[2J\u0007\u009Bx')).toBe('Key:\uFFFD[2J\uFFFD\uFFFDx')
  expect(singleLine('SELECT 1\n\t  FROM x\u202Etxt')).toBe('SELECT 1 FROM x\uFFFDtxt')
})

describe('a screen', () => {
  test('is overwritten in place, and cut to what fits', () => {
    const written: string[] = []
    const screen = new Screen(
      (text) => void written.push(text),
      () => terminalOf({ isTTY: true, columns: 80, rows: 4 }, {}),
    )
    screen.show(() => 'one\ntwo')
    screen.show(() => 'one\ntwo\nthree\nfour\nfive')
    expect(written).toEqual([
      '\u001B[2J\u001B[Hone\u001B[K\ntwo\u001B[K\n\u001B[J',
      '\u001B[Hone\u001B[K\ntwo\u001B[K\n… 3 more lines\u001B[K\n\u001B[J',
    ])
  })

  test.each([
    ['a pipe', {}, {}],
    ['a dumb terminal', { isTTY: true, columns: 80, rows: 4 }, { TERM: 'dumb' }],
  ])('gets one frame below the other if it is %s', (_name, stream, env) => {
    const written: string[] = []
    const screen = new Screen(
      (text) => void written.push(text),
      () => terminalOf(stream, env),
    )
    for (const frame of ['a\nb\nc\nd\ne', 'f']) screen.show(() => frame)
    expect(written.join('')).toBe('a\nb\nc\nd\ne\n\nf\n')
  })
})

test('ends gracefully on the first interrupt, and at once on the second', async () => {
  expect(interruptGently()).toBe(false)
  await untilInterrupted(async (stop) => {
    expect(interruptGently()).toBe(true)
    expect(stop.aborted).toBe(true)
    expect(interruptGently()).toBe(false)
  })
  expect(interruptGently()).toBe(false)
})
