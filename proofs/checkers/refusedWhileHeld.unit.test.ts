import { expect, test } from 'vitest'
import { historyOf, operation, texts } from './plantedHistory.ts'
import { refusedWhileHeld } from './refusedWhileHeld.ts'

type Entries = Parameters<typeof historyOf>
const told = (...entries: Entries): string[] => texts(refusedWhileHeld.check(historyOf(...entries)))
const refused = (op: string, span: readonly [number, number]) =>
  operation('w2', op, 'K', span, 'failed', { note: 'LOCKSTEP_LEASE_HELD held by another' })
const lost = (op: string) => `w2 (${op}) was refused K because of another holder, and there was none`

test('accepts a refusal beside an operation that is granted, or whose outcome is unknown', () => {
  const granted = operation('w1', 'a', 'K', [10, 50], 'done')
  expect(told(granted, refused('b', [0, 10]), refused('c', [20, 30]), refused('d', [50, 60]))).toEqual([])
  for (const end of ['failed', 'unknown', 'killed'] as const)
    expect(told(operation('w1', 'a', 'K', [10, 20], end), refused('b', [90, 99]))).toEqual([])
})

test('reports refusals where all that ask at once are refused', () => {
  expect(told(refused('b', [0, 10]), refused('c', [1, 11]))).toEqual([lost('b'), lost('c')])
  const others = [operation('w1', 'a', 'K', [10, 20], 'done'), operation('w1', 'e', 'L', [0, 99], 'done')]
  expect(told(...others, refused('b', [0, 9]), refused('c', [21, 30]))).toEqual([lost('b'), lost('c')])
})

test('accepts a refusal in a span that contains a shorter one', () => {
  const holders = [operation('w1', 'a', 'K', [0, 100], 'done'), operation('w1', 'e', 'K', [10, 20], 'done')]
  expect(told(...holders, refused('b', [50, 60]))).toEqual([])
})
