import fc from 'fast-check'
import { expect, test } from 'vitest'
import { BREAK_WIDTH, duration, timeScale } from './timeScale.ts'

test('keeps the order of points, all inside', () => {
  const moments = fc.array(fc.oneof(fc.integer({ min: 0, max: 5_000 }), fc.integer({ min: 0, max: 60_000_000 })), {
    minLength: 1,
  })
  fc.assert(
    fc.property(moments, (points) => {
      const scale = timeScale(points, 150, 1040)
      const places = points.toSorted((one, other) => one - other).map((at) => scale.x(at))
      expect(places).toEqual(places.toSorted((one, other) => one - other))
      expect(places.every((x) => x >= 149.99 && x <= 1040.01)).toBe(true)
      expect(points.every((at) => scale.shows(at))).toBe(true)
      const ticks = scale.ticks().map(({ x }) => x)
      expect(ticks).toEqual(ticks.toSorted((one, other) => one - other))
      expect(ticks.length).toBeLessThan(30)
    }),
  )
})

test('is linear without a long silence', () => {
  const scale = timeScale([0, 1000, 2000, 3000, 4000], 0, 800)
  expect(scale.breaks).toEqual([])
  expect(scale.x(1000)).toBe(200)
  expect(scale.x(2500)).toBe(500)
  expect(scale.ticks().map(({ text }) => text)).toContain('1.0 ms')
})

test('shortens a long silence', () => {
  const crowd = Array.from({ length: 20 }, (_, index) => index * 100)
  const scale = timeScale([...crowd, 5_000_000], 0, 1000)
  expect(scale.breaks).toHaveLength(1)
  expect(scale.x(1900)).toBeGreaterThan(850)
  expect(scale.x(5_000_000)).toBeCloseTo(1000)
  expect(scale.shows(2_500_000)).toBe(false)
  const [silence] = scale.breaks
  expect(scale.x(silence?.to ?? 0) - scale.x(silence?.from ?? 0)).toBeCloseTo(BREAK_WIDTH)
})

test('does not stretch a few moments with enough room', () => {
  expect(timeScale([0, 1000, 9000], 0, 900).breaks).toEqual([])
  expect(timeScale([0, 9000], 0, 900).breaks).toEqual([])
  expect(timeScale([0, 9000, 90_000_000], 0, 900).breaks).toHaveLength(1)
})

test('extends only a little before and after', () => {
  const scale = timeScale([1000, 2000], 100, 200)
  expect(scale.x(-1_000_000)).toBe(84)
  expect(scale.x(1_000_000)).toBe(216)
  expect(scale.shows(999)).toBe(false)
})

test('formats durations', () => {
  expect([740_000, 3_210_000, 1_500, 12_000_000].map(duration)).toEqual(['740 ms', '3.21 s', '1.5 ms', '12 s'])
})
