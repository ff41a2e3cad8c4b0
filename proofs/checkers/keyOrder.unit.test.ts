import fc from 'fast-check'
import { expect, test } from 'vitest'
import { keyOrder, orderOf, type OrderCounts } from './keyOrder.ts'
import { historyOf, took, texts } from './plantedHistory.ts'

const sink = keyOrder({ repeats: true })
const inbox = keyOrder({ repeats: false })

/** Numbers of one stream as they arrive, each the event of an operation of its own. */
const arriving = (...numbers: readonly number[]) =>
  historyOf(numbers.map((value, at) => took(at, `op ${value}`, 'K', { value })))

test('accepts 1, 2, 3 of each key, and duplicates at a sink', () => {
  const both = historyOf(
    [1, 2, 3].map((value) => took(value, `op ${value}`, 'K', { value })),
    ['1', '2'].map((value, at) => took(at, `other ${value}`, 'L', { value })),
  )
  expect(sink.check(both)).toEqual([])
  expect(inbox.check(both)).toEqual([])
  expect(sink.check(arriving(1, 2, 1, 2, 3, 1))).toEqual([])
})

test('reports duplicates at an inbox', () => {
  expect(texts(inbox.check(arriving(1, 2, 1)))).toEqual(['K #1 came again at 2 ms'])
})

test.each<[string, number[], string]>([
  ['a gap', [1, 2, 4, 5], 'K #4 came when #3 was next; #3 never came'],
  ['a long gap', [1, 5], 'K #5 came when #2 was next; #2 to #4 never came'],
  ['a stream that does not begin at 1', [2], 'K #2 came when #1 was next; #1 never came'],
  ['an inversion', [1, 3, 2, 4], 'K #3 came when #2 was next; #2 came later'],
  ['a gap that is filled in part', [1, 5, 3, 6], 'K #5 came when #2 was next; #2 to #4 came later, but for 2 of them'],
  ['a number that no event has', [1, 0, 2], 'K #0 came, a number that no event has'],
])('reports %s, once', (_, numbers, text) => {
  expect(texts(sink.check(arriving(...numbers)))).toEqual([text])
  expect(texts(inbox.check(arriving(...numbers)))).toEqual([text])
})

test('reports a number of two events', () => {
  const history = historyOf(took(1, 'a', 'K', { value: 1 }), took(2, 'b', 'K', { value: 1 }))
  expect(sink.check(history)).toEqual([
    {
      invariant: 'order per key',
      scenario: 'made up',
      key: 'K',
      text: 'K #1 came twice, as the event of a and of b',
      ops: ['a', 'b'],
      at: 2000,
    },
  ])
})

test('reports each of several gaps with its outcome', () => {
  expect(texts(sink.check(arriving(2, 4, 6, 3, 7)))).toEqual([
    'K #2 came when #1 was next; #1 never came',
    'K #4 came when #3 was next; #3 came later',
    'K #6 came when #5 was next; #5 never came',
  ])
})

test('rejects an event without a number', () => {
  expect(() => sink.check(historyOf(took(1, 'a', 'K')))).toThrow("'took' of outside on K has to carry a number")
})

/** Batches that a dispatcher sends, each from somewhere that was sent already, as after a crash. */
const deliveries = fc
  .array(fc.record({ back: fc.nat(5), ahead: fc.integer({ min: 1, max: 6 }) }), { minLength: 1, maxLength: 20 })
  .map((batches) => {
    const numbers: number[] = []
    let next = 1
    for (const { back, ahead } of batches) {
      for (let number = Math.max(1, next - back); number < next + ahead; number++) numbers.push(number)
      next += ahead
    }
    return { numbers, last: next - 1 }
  })

test('accepts batches that repeat earlier events, and reports a missing number and a swap', () => {
  fc.assert(
    fc.property(deliveries, fc.nat(), ({ numbers, last }, choice) => {
      expect(sink.check(arriving(...numbers))).toEqual([])
      const once = [...new Set(numbers)]
      expect(inbox.check(arriving(...once))).toEqual([])
      expect(inbox.check(arriving(...numbers))).toHaveLength(numbers.length - once.length)
      fc.pre(last > 1)
      const lost = 1 + (choice % (last - 1))
      expect(texts(sink.check(arriving(...numbers.filter((number) => number !== lost))))).toEqual([
        `K #${lost + 1} came when #${lost} was next; #${lost} never came`,
      ])
      const swapped = once.map((number) => (number === lost ? lost + 1 : number === lost + 1 ? lost : number))
      expect(texts(inbox.check(arriving(...swapped)))).toEqual([
        `K #${lost + 1} came when #${lost} was next; #${lost} came later`,
      ])
    }),
  )
})

const CLEAN = { duplicates: 0, late: 0, outOfOrder: 0, inversions: 0, gaps: 0, diverged: 0 }

/** What a sink or a broker got of one key. */
const got = (...list: readonly (number | readonly [seq: number, id: string])[]): OrderCounts =>
  orderOf(
    list
      .map((each) => (typeof each === 'number' ? [each, `id ${each}`] : each))
      .map(([seq, id]) => ({ key: 'k', seq, id }) as never),
  )

test('counts what came in order as events, for each key', () => {
  const at = (key: string, seq: number) => ({ key, seq, id: `${key}${seq}` })
  expect(orderOf([at('a', 1), at('b', 1), at('a', 2), at('b', 2)])).toEqual({
    deliveries: 4,
    events: 4,
    ...CLEAN,
  })
})

test.each<[string, OrderCounts, Partial<OrderCounts>]>([
  ['something again', got(1, 2, 2), { events: 2, duplicates: 1 }],
  ['something again behind a later one', got(1, 2, 1), { duplicates: 1, late: 1 }],
  ['a gap that is filled later', got(1, 3, 2), { events: 3, outOfOrder: 2, inversions: 1 }],
  ['the second before the first', got(2, 1), { outOfOrder: 2, inversions: 1 }],
  ['a gap', got(1, 4), { outOfOrder: 1, gaps: 2 }],
  ['a stream that does not begin at 1', got(2, 3), { outOfOrder: 1, gaps: 1 }],
  ['a number with two ids', got(1, 2, [2, 'another']), { diverged: 1 }],
  ['a number with two ids after a gap', got([3, 'one'], [3, 'other']), { outOfOrder: 1, gaps: 2, diverged: 1 }],
  ['a number that no event has', got(1, 0), { outOfOrder: 1 }],
])('counts %s', (_, report, expected) => {
  expect(report).toMatchObject({ ...CLEAN, ...expected })
})
