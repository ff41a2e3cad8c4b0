import { expect, test } from 'vitest'
import { orderAtBroker } from './brokerOrder.ts'

const of = (...list: readonly [seq: number, id?: string][]): ReturnType<typeof orderAtBroker> =>
  orderAtBroker(list.map(([seq, id = `id ${seq}`]) => ({ key: 'k', seq, id })))
const clean = { again: 0, late: 0, inversions: 0, gaps: 0, diverged: 0 }

test('in order', () => {
  expect(of([1], [2], [3])).toEqual({ messages: 3, events: 3, ...clean })
})

test('each fault is told as what it is', () => {
  expect(of([1], [2], [2])).toMatchObject({ ...clean, again: 1 })
  expect(of([1], [2], [1])).toMatchObject({ ...clean, again: 1, late: 1 })
  expect(of([1], [3], [2])).toMatchObject({ ...clean, inversions: 1 })
  expect(of([1], [4])).toMatchObject({ ...clean, gaps: 2 })
  expect(of([2], [3])).toMatchObject({ ...clean, gaps: 1 })
  expect(of([1], [2], [2, 'another'])).toMatchObject({ ...clean, diverged: 1 })
})

test('keys do not mix', () => {
  const at = (key: string, seq: number): { key: string; seq: number; id: string } => ({ key, seq, id: `${key}${seq}` })
  expect(orderAtBroker([at('a', 1), at('b', 1), at('a', 2), at('b', 2)])).toMatchObject({ events: 4, ...clean })
})
