import { expect, test } from 'vitest'
import { bytes, clock, count, duration, number, seconds } from './wording.ts'

test.each([
  [-5, '0 ms'],
  [999, '999 ms'],
  [1_000, '1.0 s'],
  [59_999, '59 s'],
  [60_000, '1 min 0 s'],
  [3_599_999, '59 min 59 s'],
  [3_600_000, '1 h 0 min'],
  [90_000_000, '1 d 1 h'],
])('formats %i ms as %s', (ms, text) => expect(duration(ms)).toBe(text))

test('rounds durations to seconds where they are counted by the second', () => {
  expect([0, 999, 1_500, 59_999, 61_000].map(seconds)).toEqual(['0 s', '0 s', '1 s', '59 s', '1 min 1 s'])
})

test('formats numbers, plurals and sizes', () => {
  expect([0, 1.26, 12.6, 1234.5].map(number)).toEqual(['0', '1.3', '13', '1,235'])
  expect([count(1, 'shard'), count(2, 'shard'), count(1200, 'key')]).toEqual(['1 shard', '2 shards', '1,200 keys'])
  expect([0, 1023, 1024, 15 * 1024 ** 2, 3 * 1024 ** 4].map(bytes)).toEqual([
    '0 B',
    '1,023 B',
    '1 kB',
    '15 MB',
    '3,072 GB',
  ])
})

test('adds the date to a time of another day', () => {
  const noon = new Date(2026, 2, 4, 12, 5, 6).getTime()
  expect(clock(noon, noon)).toBe('12:05:06')
  expect(clock(noon, noon + 86_400_000)).toBe('4 Mar 2026, 12:05:06')
})
