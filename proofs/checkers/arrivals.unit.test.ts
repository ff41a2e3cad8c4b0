import { expect, test } from 'vitest'
import { type Arrival, Arrivals } from './arrivals.ts'

const arrival = (seq: number, id = `id ${seq}`): Arrival => ({ key: 'a', seq, id, mark: `a ${seq}` })

test('counts marks that are missing, and marks that came', () => {
  const arrivals = new Arrivals([arrival(1), arrival(2), arrival(1)])
  expect(arrivals.count).toBe(3)
  expect(arrivals.missing(['a 1', 'a 3'])).toBe(1)
  expect(arrivals.arrived(['a 2', 'a 3'])).toBe(1)
  expect(arrivals.report()).toMatchObject({ events: 2, duplicates: 1, outOfOrder: 0, examples: [] })
  expect(new Arrivals([arrival(2), arrival(2, 'other')]).report().examples).toEqual([
    'a #2 came when #1 was next',
    'a #2 came with two ids',
  ])
})

test('counts arrivals that are not stored under their number and id', () => {
  const arrivals = new Arrivals([arrival(1), arrival(2)])
  expect(arrivals.notIn([arrival(1), arrival(2), arrival(3)])).toBe(0)
  expect(arrivals.notIn([arrival(1)])).toBe(1)
  expect(arrivals.notIn([arrival(1), arrival(2, 'another')])).toBe(1)
  expect(arrivals.notIn([arrival(1)], 1)).toBe(0)
})
