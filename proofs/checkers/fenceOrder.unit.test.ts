import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fenceOrder } from './fenceOrder.ts'
import { historyOf, operation, took, texts } from './plantedHistory.ts'

const told = (...entries: Parameters<typeof historyOf>): string[] => texts(fenceOrder.check(historyOf(...entries)))
const askers = [operation('w1', 'a', 'K', [0, 100], 'done'), operation('w2', 'b', 'K', [0, 100], 'killed')]

test('accepts writes in the order of their fences, and several with one fence', () => {
  const writes = ['9', '9', '10', '10', '99999999999999999999'].map((fence, at) => took(at, 'a', 'K', { fence }))
  expect(told(writes, took(9, 'b', 'L', { fence: '1' }))).toEqual([])
})

test('reports a write with a lower fence than an earlier one, once per writer', () => {
  const history = historyOf(
    ...askers,
    took(1, 'a', 'K', { fence: '9' }),
    took(2, 'b', 'K', { fence: '10' }),
    took(3, 'a', 'K', { fence: '9' }),
    took(4, 'a', 'K', { fence: '9' }),
    took(5, 'b', 'K', { fence: '10' }),
  )
  expect(fenceOrder.check(history)).toEqual([
    {
      invariant: 'no stale write',
      scenario: 'made up',
      key: 'K',
      text: 'w1 (a) wrote to K with fence 9 after w2 (b) had with fence 10: its time was over',
      ops: ['b', 'a'],
      at: 3000,
    },
  ])
})

test('reports one fence of two holders', () => {
  const writes = ['a', 'b'].map((op, at) => took(at, op, 'K', { fence: '9' }))
  expect(told(...askers, writes)).toEqual([
    'w2 (b) wrote to K with fence 9 after w1 (a) had with fence 9: its time was over',
  ])
})

test('compares fences as integers of any size', () => {
  const fences = ['9007199254740993', '9007199254740992']
  expect(told(fences.map((fence, at) => took(at, fence, 'K', { fence })))).toHaveLength(1)
})

test('reports a late write without fences when a holder writes again after another one', () => {
  const writes = (...ops: string[]) => ops.map((op, at) => took(at, op, 'K'))
  expect(told(writes('a', 'a', 'b', 'b', 'c'), took(9, 'a', 'L'))).toEqual([])
  expect(told(askers.flat(), writes('a', 'b', 'a'))).toEqual([
    'w1 (a) wrote to K again after w2 (b) had: both took it for theirs',
  ])
  // The one in between continues and has done nothing wrong.
  expect(told(writes('a', 'b', 'a', 'b', 'a', 'b'))).toHaveLength(1)
  expect(told(writes('a', 'b', 'c', 'a', 'a'))).toEqual(['a wrote to K again after c had: both took it for theirs'])
})

test('accepts holders in turn, and reports a write that is delayed past the next holder', () => {
  const turns = fc.array(fc.record({ key: fc.constantFrom('K', 'L'), writes: fc.integer({ min: 1, max: 4 }) }), {
    minLength: 2,
    maxLength: 20,
  })
  fc.assert(
    fc.property(turns, fc.boolean(), fc.nat(), (holders, fenced, choice) => {
      const writes = holders.flatMap(({ key, writes: count }, index) =>
        Array.from({ length: count }, () => ({ key, op: `op ${index}`, fence: String(index + 5) })),
      )
      const arrive = (order: typeof writes): string[] =>
        told(order.map(({ key, op, fence }, at) => took(at, op, key, fenced ? { fence } : {})))
      expect(arrive(writes)).toEqual([])

      // Without a fence, only a writer that has written before can be recognized as late: the last of several writes is late.
      const late = holders[choice % holders.length]
      const op = `op ${choice % holders.length}`
      const own = writes.filter((write) => write.op === op)
      const later = writes.findIndex((write, at) => write.key === late?.key && at > writes.indexOf(own.at(-1) as never))
      fc.pre(own.length > 1 && later >= 0)
      const last = own.at(-1) as (typeof writes)[number]
      const order = writes.filter((write) => write !== last)
      order.splice(later, 0, last)
      expect(arrive(order)).toHaveLength(1)
    }),
  )
})
