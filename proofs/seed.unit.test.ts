import fc from 'fast-check'
import { expect, test } from 'vitest'
import { random } from './seed.ts'

test('gives the same numbers for the same seed and names, and others for others', () => {
  const numbers = (seed: number, ...names: string[]): number[] => {
    const chance = random(seed, ...names)
    return Array.from({ length: 20 }, () => chance.next())
  }
  expect(numbers(7, 'w1', 'wallet')).toEqual(numbers(7, 'w1', 'wallet'))
  expect(numbers(7, 'w1', 'wallet')).not.toEqual(numbers(8, 'w1', 'wallet'))
  expect(numbers(7, 'w1', 'wallet')).not.toEqual(numbers(7, 'w2', 'wallet'))
})

test('spreads numbers, keeps integers within bounds, and shuffles without loss', () => {
  fc.assert(
    fc.property(fc.integer(), fc.array(fc.integer(), { minLength: 1, maxLength: 20 }), (seed, all) => {
      const chance = random(seed)
      expect(chance.shuffled(all).toSorted((one, other) => one - other)).toEqual(
        all.toSorted((one, other) => one - other),
      )
      expect(all).toContain(chance.pick(all))
      for (let draw = 0; draw < 20; draw++) expect(chance.below(3)).toBeOneOf([0, 1, 2])
      for (let draw = 0; draw < 20; draw++) expect(chance.whole(5, 7)).toBeOneOf([5, 6, 7])
    }),
  )
  const chance = random(1)
  const draws = Array.from({ length: 10_000 }, () => chance.next())
  expect(draws.every((each) => each >= 0 && each < 1)).toBe(true)
  for (let tenth = 0; tenth < 10; tenth++) {
    expect(draws.filter((each) => Math.floor(each * 10) === tenth).length).toBeGreaterThan(800)
  }
  expect(draws.filter(() => chance.chance(0.25)).length).toBeGreaterThan(2000)
})
