import fc from 'fast-check'
import { expect, test } from 'vitest'
import { conservedTotal, explainedBalances } from './conservedTotal.ts'
import { found, historyOf, texts } from './plantedHistory.ts'

test('accepts accounts with an unchanged total, whatever else is found', () => {
  const history = historyOf(
    found('A', 30),
    found('B', '70'),
    found('effect:A > B', undefined, 'op 1'),
    found('held:lease A'),
    found('connections:w1', 3),
  )
  expect(conservedTotal(100).check(history)).toEqual([])
})

test('reports a lower and a higher total', () => {
  expect(conservedTotal(100).check(historyOf(found('A', 30), found('B', 60)))).toEqual([
    {
      invariant: 'conserved total',
      scenario: 'made up',
      key: '',
      text: '2 accounts hold 90 together instead of 100: 10 are lost',
      ops: [],
      at: 1_000_000_000,
    },
  ])
  expect(texts(conservedTotal(100).check(historyOf(found('A', 101))))).toEqual([
    '1 account holds 101 instead of 100: 1 came from nowhere',
  ])
  expect(texts(conservedTotal(100).check(historyOf()))).toEqual(['no account was found, instead of 100: 100 are lost'])
})

test('accepts transfers, and reports half of one', () => {
  const transfers = fc.array(fc.tuple(fc.nat(4), fc.nat(4), fc.integer({ min: 1, max: 50 })), { minLength: 1 })
  fc.assert(
    fc.property(transfers, (all) => {
      const balances = [100, 100, 100, 100, 100]
      const check = (): number =>
        conservedTotal(500).check(historyOf(balances.map((balance, index) => found(`account ${index}`, balance))))
          .length
      for (const [from, to, amount] of all) {
        balances[from] = (balances[from] ?? 0) - amount
        balances[to] = (balances[to] ?? 0) + amount
      }
      expect(check()).toBe(0)
      const [half] = all
      balances[half?.[1] ?? 0] = (balances[half?.[1] ?? 0] ?? 0) - (half?.[2] ?? 0)
      expect(check()).toBe(1)
    }),
  )
})

test('reports a balance that its transfers do not explain, also where the total is right', () => {
  const moved = (amount: number) => found('effect:A > B', amount, `op ${amount}`)
  expect(explainedBalances(50).check(historyOf(found('A', 20), found('B', '80'), moved(20), moved(10)))).toEqual([])
  const history = historyOf(found('A', 40), found('B', 60), moved(20))
  expect(conservedTotal(100).check(history)).toEqual([])
  expect(texts(explainedBalances(50).check(history))).toEqual([
    'A holds 40, and its transfers make it 30',
    'B holds 60, and its transfers make it 70',
  ])
})
