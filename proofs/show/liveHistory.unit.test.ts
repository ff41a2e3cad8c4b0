import { expect, test } from 'vitest'
import type { Entry, History } from '../history.ts'
import { cardOf } from './cards.ts'
import { liveHistory } from './liveHistory.ts'

const [SOURCE, TARGET] = ['account 1.0', 'account 1.1'] as const
const entry = (what: Entry['what'], op: string, key: string, value?: number): Entry => ({
  at: 1,
  by: 'w1',
  scenario: 'transfers',
  op,
  what,
  key,
  ...(value !== undefined && { value }),
})

test('finds nothing wrong where another transfer was committed since the history was taken', () => {
  const history: History = {
    scenario: 'transfers',
    form: 'lockstep',
    entries: [entry('asked', 'r1.a', `${SOURCE} > ${TARGET}`), entry('done', 'r1.a', `${SOURCE} > ${TARGET}`)],
    faults: [],
  }
  const found = [
    entry('found', '', SOURCE, 1000 - 100 - 30),
    entry('found', '', TARGET, 1000 + 100 + 30),
    entry('found', '', 'account 1.2', 1000),
    entry('found', '', 'account 1.3', 1000),
    entry('found', 'r1.a', `effect:${SOURCE} > ${TARGET}`, 100),
    // Not in the history yet.
    entry('found', 'r1.b', `effect:${SOURCE} > ${TARGET}`, 30),
  ]
  const seen = cardOf('transfers').live.flatMap((checker) => checker.check(liveHistory(history, found)))
  expect(seen).toEqual([])
})
