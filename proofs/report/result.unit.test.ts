import type { Form, Violation } from '../history.ts'
import { expect, test } from 'vitest'
import { addRound, emptyForms, operationsOf } from './result.ts'
import { lostUpdate, Story } from './testing/stories.ts'

type Kept = (Violation & { form: Form; round: number })[]

test('counts operations by outcome, and those without one as unknown', () => {
  const story = new Story('wallet', 'Wallet:1')
    .tell(0, 'w1.1', 'asked')
    .tell(1, 'w1.1', 'done', 1)
    .tell(0, 'w1.2', 'asked')
    .tell(1, 'w1.2', 'failed')
    .tell(0, 'w1.3', 'asked')
    .tell(1, 'w1.3', 'unknown')
    .tell(0, 'w1.4', 'asked')
    .tell(9, '', 'found', 1, { by: 'database' })
  const { naive } = emptyForms()
  addRound(naive, 1, story.history(), [], [])
  addRound(naive, 2, story.history(), [], [])
  expect(naive).toEqual({ rounds: 2, done: 2, failed: 2, unknown: 4, violations: 0 })
  expect(operationsOf(naive)).toBe(8)
})

test('keeps the picture of the first violation, counts all, and limits the list', () => {
  const { history, violation } = lostUpdate()
  const { naive, lockstep } = emptyForms()
  const kept: Kept = []
  addRound(naive, 1, history, [], kept)
  addRound(naive, 2, history, [violation, { ...violation, text: 'another' }], kept)
  addRound(
    naive,
    3,
    history,
    Array.from({ length: 70 }, () => violation),
    kept,
  )
  expect(naive.first).toEqual({ violation, round: 2, history })
  expect(naive.violations).toBe(72)
  expect(kept).toHaveLength(50)
  expect(kept[1]).toMatchObject({ text: 'another', form: 'naive', round: 2 })
  expect(lockstep.rounds).toBe(0)
})
