import fc from 'fast-check'
import { expect, test } from 'vitest'
import { CREATED, exactlyOnce, onePerKey } from './exactlyOnce.ts'
import { entry, found, historyOf, operation, took, texts } from './plantedHistory.ts'

type Entries = Parameters<typeof historyOf>

const effect = (op: string, key = 'K') => found(`effect:${key}`, undefined, op)
const told = (...entries: Entries): string[] => texts(exactlyOnce.check(historyOf(...entries)))

test('accepts one effect of a success, none of a failure, and at most one of an unknown outcome', () => {
  const asked = [
    operation('w1', 'a', 'K', [0, 1], 'done'),
    operation('w1', 'b', 'K', [0, 1], 'failed'),
    operation('w1', 'c', 'K', [0, 1], 'unknown'),
    operation('w1', 'd', 'K', [0, 1], 'unknown'),
    operation('w1', 'e', 'K', [0, 1], 'killed'),
    operation('w1', 'f', 'K', [0, 1], 'killed'),
  ]
  expect(told(...asked, effect('a'), effect('d'), effect('f'), found('K', 3))).toEqual([])
})

test.each<[string, Entries, string]>([
  [
    'one that is done without an effect',
    [operation('w1', 'a', 'K', [0, 1], 'done'), found('K', 0)],
    'w1 (a) was acknowledged, and has left nothing at K',
  ],
  [
    'one that is done twice',
    [operation('w1', 'a', 'K', [0, 1], 'done'), effect('a'), effect('a')],
    'w1 (a) has changed K 2 times instead of once',
  ],
  [
    'one that failed and has an effect',
    [operation('w1', 'a', 'K', [0, 1], 'failed'), effect('a')],
    'w1 (a) received an error, and has changed K all the same',
  ],
  [
    'one that failed and has two',
    [operation('w1', 'a', 'K', [0, 1], 'failed'), effect('a'), effect('a')],
    'w1 (a) received an error, and has changed K all the same 2 times',
  ],
  [
    'one of unknown end with two',
    [operation('w1', 'a', 'K', [0, 1], 'unknown'), effect('a'), effect('a')],
    'w1 (a) has changed K 2 times instead of once',
  ],
  [
    'one that was killed with three',
    [operation('w1', 'a', 'K', [0, 1], 'killed'), effect('a'), effect('a'), effect('a')],
    'w1 (a) has changed K 3 times instead of once',
  ],
  [
    'one whose answer differs from what it has made',
    [operation('w1', 'a', 'K', [0, 1], 'done', { value: '1' }), found('effect:K', '7', 'a')],
    'w1 (a) received 1, and has made 7 of K',
  ],
  ['one without a request', [effect('a')], 'a has changed K, which no operation had asked for'],
  ['one of an unknown writer', [effect('')], 'an unknown writer has changed K, which no operation had asked for'],
  [
    'one that only the world outside knows of',
    [took(1, 'a', 'K'), effect('a')],
    'a has changed K, which no operation had asked for',
  ],
])('reports %s', (_, entries, text) => {
  expect(told(...entries)).toEqual([text])
})

test('reports time, key and worker', () => {
  const history = historyOf(operation('w1', 'a', 'K', [0, 7], 'done'), effect('a'), effect('a'))
  expect(exactlyOnce.check(history)).toMatchObject([{ invariant: 'exactly once', key: 'K', ops: ['a'], at: 7000 }])
})

test('accepts as many effects as successes, and reports one more or less', () => {
  const ends = fc.array(
    fc.record({ end: fc.constantFrom('done', 'failed', 'unknown', 'killed'), effect: fc.boolean() }),
    { minLength: 1, maxLength: 40 },
  )
  fc.assert(
    fc.property(ends, fc.nat(), (all, choice) => {
      const asked = all.flatMap(({ end }, index) => operation('w1', `op ${index}`, 'K', [index, index + 5], end))
      const effects = all.flatMap(({ end, effect: left }, index) =>
        end === 'done' || (end !== 'failed' && left) ? [effect(`op ${index}`)] : [],
      )
      expect(told(asked, effects)).toEqual([])
      const victim = `op ${choice % all.length}`
      const has = effects.some(({ op }) => op === victim)
      const end = all[choice % all.length]?.end
      if (has || end === 'failed') expect(told(asked, effects, effect(victim))).toHaveLength(1)
      if (end !== 'done') return
      expect(
        told(
          asked,
          effects.filter(({ op }) => op !== victim),
        ),
      ).toHaveLength(1)
    }),
  )
})

const position = onePerKey('position')
const opened = (op: string, by: string, at: number) => [
  entry(at, by, op, 'asked', 'S1'),
  entry(at + 1, by, op, 'wrote', 'S1', { value: op }),
  entry(at + 2, by, op, 'done', 'S1', { value: op }),
]

test('accepts one row and one order per key, however often it is requested and sent', () => {
  const history = historyOf(
    opened('a', 'w1', 0),
    operation('w2', 'b', 'S1', [1, 9], 'done', { value: 'a' }),
    operation('w2', 'c', 'S2', [1, 9], 'failed'),
    operation('w2', 'd', 'S3', [1, 9], 'killed'),
    took(3, 'a', 'S1', { value: 'a' }),
    took(4, 'b', 'S1', { value: 'a' }),
    took(5, 'd', 'S3', { value: 'd' }),
    found('S1', 'a'),
  )
  expect(position.check(history)).toEqual([])
})

test('reports two rows with their writers', () => {
  const history = historyOf(opened('a', 'w1', 0), opened('b', 'w2', 1), found('S1', 'a'), found('S1', 'b'))
  expect(position.check(history)).toEqual([
    {
      invariant: 'one per key',
      scenario: 'made up',
      key: 'S1',
      text: '2 positions are there for S1: a and b',
      ops: ['a', 'b'],
      at: 3000,
    },
  ])
  expect(texts(position.check(historyOf(found('S1', 'a'), found('S1', 'a'))))).toEqual([
    '2 positions are there for S1: a and a',
  ])
})

test('reports two orders that the exchange accepted', () => {
  const orders = [took(3, 'a', 'S1', { value: 'a' }), took(4, 'b', 'S1', { value: 'b' })]
  expect(texts(position.check(historyOf(opened('a', 'w1', 0), orders, found('S1', 'a'))))).toEqual([
    'the world outside took 2 positions for S1: a from w1 (a) and b from b',
  ])
})

test('reports a missing row that was returned to a caller, once per key', () => {
  expect(texts(position.check(historyOf(opened('a', 'w1', 0), opened('b', 'w1', 5), found('S2', 'b'))))).toEqual([
    'w1 (a) received a position for S1, and there is none',
  ])
})

test('reports an operation that received another value than the row has', () => {
  const other = operation('w2', 'b', 'S1', [1, 9], 'done', { value: 'b' })
  expect(texts(position.check(historyOf(opened('a', 'w1', 0), other, found('S1', 'a'))))).toEqual([
    'w2 (b) received the position b for S1, and the one that is there is a',
  ])
  // One that was begun and is not open.
  expect(texts(position.check(historyOf(opened('a', 'w1', 0), found('S1', 'a (opening)'))))).toEqual([
    'w1 (a) received the position a for S1, and the one that is there is a (opening)',
  ])
})

test('reports two operations that both created it', () => {
  const created = (by: string, op: string) => operation(by, op, 'S1', [0, 1], 'done', { value: 'a', note: CREATED })
  expect(position.check(historyOf(created('w1', 'a'), found('S1', 'a')))).toEqual([])
  expect(texts(position.check(historyOf(created('w1', 'a'), created('w2', 'b'), found('S1', 'a'))))).toEqual([
    'w1 (a) and w2 (b) were each acknowledged as the creator of the position for S1',
  ])
})
