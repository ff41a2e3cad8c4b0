import fc from 'fast-check'
import { expect, test } from 'vitest'
import { keyOrder } from './keyOrder.ts'
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
