import { expect, test } from 'vitest'
import { numberOf, operationsOf, outcomeOf } from './operations.ts'
import { entry, found, historyOf, operation, took } from './plantedHistory.ts'

test('joins an operation from the records of its process', () => {
  const operations = operationsOf(
    historyOf(
      operation('w1', 'a', 'K', [1, 5], 'done', { value: 3 }),
      entry(2, 'w1', 'a', 'wrote', 'K'),
      operation('w2', 'b', 'L', [2, 0], 'killed'),
      operation('w2', 'c', 'L', [2, 3], 'failed'),
    ),
  )
  expect([...operations.values()].map((each) => [each.id, each.by, each.key, each.askedAt, each.wrote])).toEqual([
    ['a', 'w1', 'K', 1000, true],
    ['b', 'w2', 'L', 2000, false],
    ['c', 'w2', 'L', 2000, false],
  ])
  expect([...operations.values()].map(outcomeOf)).toEqual(['done', 'open', 'failed'])
  expect(operations.get('a')?.end).toMatchObject({ what: 'done', at: 5000, value: 3 })
})

test('has no caller for what only the outside and the database name', () => {
  expect(
    operationsOf(historyOf(took(1, 'a', 'K'), found('effect:K', undefined, 'b'), entry(1, 'w1', '', 'asked', 'K'))),
  ).toHaveLength(0)
})

test('replaces an unknown outcome that is resolved later', () => {
  const history = historyOf(operation('w1', 'a', 'K', [1, 2], 'unknown'), entry(9, 'w1', 'a', 'done', 'K'))
  expect([...operationsOf(history).values()].map(outcomeOf)).toEqual(['done'])
})

test('orders an operation without a start after nothing', () => {
  expect(operationsOf(historyOf(entry(2, 'w1', 'a', 'done', 'K'))).get('a')?.askedAt).toBe(-Infinity)
})

test('reads numbers from numbers and from text', () => {
  expect(numberOf(found('K', 7))).toBe(7)
  expect(numberOf(found('K', '-7'))).toBe(-7)
  for (const value of [undefined, '', ' ', 'seven', Number.NaN, null as never]) {
    expect(() => numberOf({ ...found('K'), value } as never)).toThrow("'found' of database on K has to carry a number")
  }
})
