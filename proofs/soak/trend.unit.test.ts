import { expect, test } from 'vitest'
import { verdictOf } from '../../tools/judge/report.ts'
import { random } from '../seed.ts'
import { judge, type Point, trendOf } from './trend.ts'

const TOLERANCE = { percent: 5, least: 1 }
const EVERY_MS = 30_000

/** An hour of samples: a value, what it grows by in the hour, noise, and an outlier now and then, as faults leave them. */
function hour({ grows = 0, noise = 0, outliers = 0, seed = 1 }, wave: (n: number) => number = () => 0): Point[] {
  const drawn = random(seed, 'hour')
  return Array.from({ length: 90 }, (_, n) => {
    const jitter = (drawn.next() - 0.5) * 2 * noise
    const spike = drawn.chance(outliers) ? 300 : 0
    return { atMs: n * EVERY_MS, value: 100 + (grows * n) / 89 + jitter + spike + wave(n) }
  })
}
const verdict = (points: Point[], tolerance = TOLERANCE): string => verdictOf(judge('heap', points, tolerance))

test('finds a planted leak, through noise and outliers', () => {
  for (const seed of [1, 2, 3, 4, 5])
    expect(verdict(hour({ grows: 15, noise: 3, outliers: 0.1, seed }))).toBe('violated')
})

test('finds a leak that grows in steps', () => {
  expect(verdict(hour({ noise: 1 }, (n) => Math.floor(n / 30) * 10))).toBe('violated')
})

test('calls flat what is flat, through noise, outliers and a sawtooth', () => {
  for (const seed of [1, 2, 3, 4, 5]) expect(verdict(hour({ noise: 3, outliers: 0.1, seed }))).toBe('holds')
  expect(verdict(hour({ noise: 1 }, (n) => n % 7))).toBe('holds')
  expect(verdict(hour({}))).toBe('holds')
  expect(verdict(hour({ grows: -50, noise: 3 }))).toBe('holds')
})

test('decides nothing where the noise hides growth of that size, or the samples are few', () => {
  expect(verdict(hour({ grows: 5, noise: 3 }))).toBe('inconclusive')
  expect(verdict(hour({ noise: 60 }))).toBe('inconclusive')
  expect(verdict(hour({ grows: 100 }).slice(0, 7))).toBe('inconclusive')
})

test('does not break where the machine itself has become slower', () => {
  expect(verdictOf(judge('p99', hour({ grows: 100 }), TOLERANCE, true))).toBe('inconclusive')
})

test('compares with the least value where the median is below it', () => {
  const few = [3, 3, 4, 4, 5, 5, 6, 6, 7, 8].map((value, n) => ({ atMs: n, value }))
  expect(verdict(few)).toBe('violated')
  expect(verdict(few, { percent: 5, least: 200 })).toBe('holds')
})

test('estimates the growth of the run, and its interval contains it', () => {
  const trend = trendOf(hour({ grows: 20, noise: 4 }))
  expect(trend?.growth).toBeGreaterThan(15)
  expect(trend?.atLeast).toBeLessThan(20)
  expect(trend?.atMost).toBeGreaterThan(20)
})
