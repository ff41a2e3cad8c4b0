import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Entry } from '../history.ts'
import { atMost } from './mutualExclusion.ts'
import { entry, historyOf, holder, texts } from './plantedHistory.ts'

const one = atMost(1)
const told = (holders: number, ...entries: readonly (readonly Entry[])[]): string[] =>
  texts(atMost(holders).check(historyOf(...entries)))

test('is named after the number of holders', () => {
  expect(one.name).toBe('mutual exclusion')
  expect(atMost(3).name).toBe('at most 3 holders')
})

test('accepts holders in turn, also if one begins as another ends', () => {
  expect(told(1, holder('w1', 'a', 'K', [10, 20]), holder('w2', 'b', 'K', [20, 30]))).toEqual([])
  expect(told(1, holder('w1', 'a', 'K', [10]), holder('w2', 'b', 'K', [10]))).toEqual([])
  expect(told(1, holder('w1', 'a', 'K', [10, 20]), holder('w2', 'b', 'K', [20]), holder('w3', 'c', 'K', [10]))).toEqual(
    [],
  )
})

test('checks keys separately', () => {
  expect(told(1, holder('w1', 'a', 'K', [10, 20]), holder('w2', 'b', 'L', [10, 20]))).toEqual([])
})

test('ignores a grant without a claim', () => {
  const killed = [entry(12, 'w2', 'b', 'granted', 'K', { fence: '2' }), entry(18, 'w2', 'b', 'released', 'K')]
  expect(told(1, holder('w1', 'a', 'K', [10, 20]), killed)).toEqual([])
})

test('ignores the time between a loss and the next grant', () => {
  const twice = [...holder('w1', 'a', 'K', [10, 20], '1'), ...holder('w1', 'a', 'K', [40, 50], '3')]
  expect(told(1, twice, holder('w2', 'b', 'K', [25, 35], '2'))).toEqual([])
  expect(told(1, twice, holder('w2', 'b', 'K', [45, 47], '2'))).toEqual([
    '2 held K at once, where one may: w1 with fence 3 from 40 to 50 ms and w2 with fence 2 from 45 to 47 ms',
  ])
})

test('reports two concurrent holders with their fences and the time', () => {
  const history = historyOf(holder('w1', 'a', 'K', [10, 14, 20.5], '7'), holder('w2', 'b', 'K', [20, 30], '8'))
  expect(one.check(history)).toEqual([
    {
      invariant: 'mutual exclusion',
      scenario: 'made up',
      key: 'K',
      text: '2 held K at once, where one may: w1 with fence 7 from 10 to 20.5 ms and w2 with fence 8 from 20 to 30 ms',
      ops: ['a', 'b'],
      at: 20_000,
    },
  ])
})

test('uses the fence of the claim if the grant has none', () => {
  const sure = [
    entry(11, 'w2', 'b', 'granted', 'K'),
    ...[12, 14].map((at) => entry(at, 'w2', 'b', 'active', 'K', { fence: '9' })),
  ]
  expect(told(1, holder('w1', 'a', 'K', [10, 20]), sure)).toEqual([
    '2 held K at once, where one may: w1 (a) from 10 to 20 ms and w2 with fence 9 from 12 to 14 ms',
  ])
})

test('reports one moment within the time of another holder', () => {
  expect(told(1, holder('w1', 'a', 'K', [10, 20]), holder('w2', 'b', 'K', [15]))).toEqual([
    '2 held K at once, where one may: w1 (a) from 10 to 20 ms and w2 (b) at 15 ms',
  ])
})

test('reports too many holders once as long as they last, and again when it happens again', () => {
  const crowd = [1, 2, 3, 4, 5, 6, 7].map((number) =>
    holder(`w${number}`, `${number}`, 'K', [10 + number, 50 + number]),
  )
  expect(told(1, ...crowd)).toEqual([expect.stringMatching(/^7 held K at once, where one may: .* and 2 more$/)])
  expect(one.check(historyOf(...crowd))[0]?.ops).toHaveLength(5)
  const pair = [holder('w1', 'a', 'K', [10, 50]), holder('w2', 'b', 'K', [11, 51])]
  expect(told(1, ...pair, holder('w3', 'c', 'K', [20]), holder('w4', 'd', 'K', [30, 40]))).toHaveLength(1)
  const chain = [holder('w1', 'a', 'K', [10, 20]), holder('w2', 'b', 'K', [15, 35]), holder('w3', 'c', 'K', [30, 40])]
  expect(told(1, ...chain)).toHaveLength(2)
})

test('reports the fourth of three permitted holders', () => {
  const holders = [1, 2, 3, 4].map((number) => holder(`w${number}`, `${number}`, 'K', [10 + number, 20 + number]))
  expect(told(3, ...holders.slice(0, 3))).toEqual([])
  expect(told(3, ...holders)).toEqual([
    expect.stringMatching(/^4 held K at once, where 3 may: w1 .*, w2 .*, w3 .* and w4/),
  ])
  expect(told(3, ...holders.slice(0, 3), holder('w5', '5', 'K', [15]))).toHaveLength(1)
})

const anyHolders = fc.array(
  fc.record({
    key: fc.constantFrom('K', 'L'),
    from: fc.integer({ min: 0, max: 30 }),
    lasts: fc.integer({ min: 0, max: 8 }),
  }),
  { maxLength: 12 },
)

test('reports something exactly if more claims overlap than are permitted', () => {
  fc.assert(
    fc.property(anyHolders, fc.integer({ min: 1, max: 3 }), (holders, may) => {
      // Halves between the whole moments are inside of whatever has a length; a claim of one moment is compared by itself.
      const around = (key: string, moment: number): number =>
        holders.filter((each) => each.key === key && each.from < moment && each.from + each.lasts > moment).length
      const tooMany = holders.some(({ key, from, lasts }) =>
        lasts === 0 ? around(key, from) + 1 > may : around(key, from + 0.5) > may,
      )
      const entries = holders.map(({ key, from, lasts }, index) =>
        holder(`w${index}`, `op ${index}`, key, lasts === 0 ? [from] : [from, from + lasts]),
      )
      expect(told(may, ...entries).length > 0).toBe(tooMany)
    }),
    { numRuns: 2000 },
  )
})
