import fc from 'fast-check'
import { expect, test } from 'vitest'
import { nothingLost } from './nothingLost.ts'
import { entry, historyOf, operation, took, texts } from './plantedHistory.ts'

const told = (...entries: Parameters<typeof historyOf>): string[] => texts(nothingLost.check(historyOf(...entries)))
const wrote = (op: string) => entry(0, 'w1', op, 'wrote', 'K')

test('accepts events of successes, none of failures, and any of unknown outcomes', () => {
  const asked = [
    operation('w1', 'a', 'K', [0, 1], 'done'),
    operation('w1', 'b', 'K', [0, 1], 'failed'),
    operation('w1', 'c', 'K', [0, 1], 'unknown'),
    operation('w1', 'd', 'K', [0, 1], 'unknown'),
    operation('w1', 'e', 'K', [0, 1], 'killed'),
  ]
  expect(told(...asked, took(2, 'a', 'K'), took(3, 'a', 'K'), took(4, 'd', 'K'))).toEqual([])
})

test('reports a success without its event', () => {
  const asked = operation('w1', 'a', 'K', [0, 3], 'done')
  const text = 'w1 (a) was acknowledged, and its event of K never arrived'
  expect(told(asked)).toEqual([text])
  expect(nothingLost.check(historyOf(asked, wrote('a')))).toEqual([
    { invariant: 'no committed event lost', scenario: 'made up', key: 'K', text, ops: ['a'], at: 3000 },
  ])
})

test('reports an event of a failure', () => {
  expect(told(operation('w1', 'a', 'K', [0, 1], 'failed'), took(2, 'a', 'K'), took(3, 'a', 'K'))).toEqual([
    'w1 (a) received an error, and its event of K arrived all the same',
  ])
})

test('expects no events of operations without a write if others state theirs', () => {
  const asked = [operation('w1', 'a', 'K', [0, 1], 'done'), operation('w1', 'b', 'K', [0, 1], 'done')]
  expect(told(...asked, wrote('a'), took(2, 'a', 'K'))).toEqual([])
  expect(told(...asked, wrote('b'), took(2, 'a', 'K'))).toHaveLength(1)
})

test('reports a dispatcher that loses or invents an event', () => {
  const ends = fc.array(fc.constantFrom('done', 'failed', 'unknown', 'killed'), { minLength: 1, maxLength: 40 })
  fc.assert(
    fc.property(ends, fc.nat(), (all, choice) => {
      const asked = all.flatMap((end, index) => [
        ...operation('w1', `op ${index}`, 'K', [index, index + 3], end),
        wrote(`op ${index}`),
      ])
      const arrived = all.flatMap((end, index) => (end === 'done' ? [took(index + 2, `op ${index}`, 'K')] : []))
      expect(told(asked, arrived)).toEqual([])
      const victim = choice % all.length
      const others = arrived.filter(({ op }) => op !== `op ${victim}`)
      const either = all[victim] === 'done' || all[victim] === 'failed' ? 1 : 0
      expect(told(asked, others, all[victim] === 'done' ? [] : took(9, `op ${victim}`, 'K'))).toHaveLength(either)
    }),
  )
})
