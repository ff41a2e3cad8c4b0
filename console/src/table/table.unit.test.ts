import { expect, test } from 'vitest'
import { sorted } from './order.ts'
import { windowOf } from './window.ts'

test.each([
  ['nothing', 0, 600, 0, [0, 0]],
  ['fewer rows than fit', 0, 600, 5, [0, 5]],
  ['the beginning of many', 0, 360, 1000, [0, 13]],
  ['the middle', 3600, 360, 1000, [97, 113]],
  ['the end', 35_640, 360, 1000, [987, 1000]],
  ['a box that is scrolled further than there are rows, since they have become fewer', 35_640, 360, 3, [2, 3]],
])('renders the window: %s', (_, top, height, rows, expected) =>
  expect(windowOf(top, height, 36, rows)).toEqual(expected),
)

test('sorts formatted numbers as numbers, and equal ones by key in either direction', () => {
  const rows = [
    { key: 'b', name: 'Wallet:10' },
    { key: 'c', name: 'Wallet:9' },
    { key: 'a', name: 'Wallet:10' },
  ]
  const keys = (down: boolean): string[] =>
    sorted(
      rows,
      ({ name }) => name,
      down,
      ({ key }) => key,
    ).map(({ key }) => key)
  expect(keys(false)).toEqual(['c', 'a', 'b'])
  expect(keys(true)).toEqual(['a', 'b', 'c'])
})
