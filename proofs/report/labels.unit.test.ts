import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Flag, FLAG_INDENT, fixedWidth, placeFlags, proportionalWidth, shorten, wrapText } from './labels.ts'

const flags = fc.array(
  fc.record({
    x: fc.integer({ min: 0, max: 1000 }),
    text: fc.string({ minLength: 1, maxLength: 20 }),
    weight: fc.integer({ min: 0, max: 5 }),
  }),
  { maxLength: 25 },
)

const endOf = (flag: Flag): number => flag.x + FLAG_INDENT + fixedWidth(flag.text, 12)

test('places labels without overlap of texts and stems', () => {
  fc.assert(
    fc.property(flags, fc.integer({ min: 1, max: 6 }), (given, mostRows) => {
      const placed = placeFlags(given, 12, mostRows)
      expect(placed.every(({ row }) => row < mostRows)).toBe(true)
      for (const one of placed) {
        // The stem of a flag reaches down to its own row, so a text is free of all that reach it.
        const crossed = placed.filter(
          (other) => other !== one && other.row >= one.row && other.x > one.x && other.x < endOf(one),
        )
        expect(crossed).toEqual([])
      }
    }),
  )
})

test('keeps all labels if there is room', () => {
  fc.assert(
    fc.property(flags, (given) => {
      expect(placeFlags(given, 12, 100)).toHaveLength(given.length)
    }),
  )
})

test('drops the less important label without room', () => {
  const both = [
    { x: 10, text: 'released', weight: 1 },
    { x: 12, text: 'done: 6', weight: 5 },
  ]
  expect(placeFlags(both, 12, 1).map(({ text }) => text)).toEqual(['done: 6'])
  expect(placeFlags([both[1] as Flag, { ...(both[0] as Flag), x: 20 }], 12, 1).map(({ text }) => text)).toEqual([
    'done: 6',
  ])
  expect(placeFlags(both, 12, 2).map(({ row }) => row)).toEqual([1, 0])
})

test('wraps lines to the given width, and marks cut text', () => {
  const text = 'one two three four five six seven eight nine ten'
  const lines = wrapText(text, 20, 150, 2)
  expect(lines).toHaveLength(2)
  expect(lines[1]).toMatch(/…$/)
  expect(wrapText(text, 20, 150, 20).join(' ')).toBe(text)
  for (const line of wrapText(`${'x'.repeat(90)} ${text}`, 20, 150, 20))
    expect(proportionalWidth(line, 20)).toBeLessThanOrEqual(150)
})

test('cuts text between characters', () => {
  expect(shorten('👩👩👩', 2)).toBe('👩…')
  expect(shorten('abc', 3)).toBe('abc')
})
