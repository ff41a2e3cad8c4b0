import { expect, test } from 'vitest'
import { byOperation, cutOut, MOST_LANES, MOST_OPERATIONS } from './cutOut.ts'
import { lateHolder, lostUpdate, Story, violationOf } from './testing/stories.ts'

function busy(): Story {
  const story = new Story('wallet', 'Wallet:1')
  for (let turn = 0; turn < 100; turn++) {
    for (let worker = 1; worker <= 12; worker++) {
      const op = `w${worker}.${turn}`
      story.tell(turn * 10 + worker / 20, op, 'asked').tell(turn * 10 + 9, op, 'done', turn)
    }
  }
  story.tell(205, 'w1.other', 'asked', undefined, { key: 'Wallet:2' })
  return story
}

test('keeps the violation and the nearest entries of its key out of thousands', () => {
  const story = busy()
  const violation = violationOf(story, 'both', ['w9.20', 'w9.21', 'w12.22'], 229)
  const cut = cutOut(story.history(), violation)
  const operations = byOperation(cut.entries)
  expect([...operations.keys()]).toEqual(expect.arrayContaining(['w9.20', 'w12.22']))
  expect(operations.size).toBe(MOST_OPERATIONS)
  expect(new Set(cut.entries.map(({ by }) => by)).size).toBe(MOST_LANES)
  expect(operations.has('w1.other')).toBe(false)
  expect(cut.entries.every(({ at }) => at >= 190_000 && at <= 240_000)).toBe(true)
})

test('changes nothing when applied twice', () => {
  const story = busy()
  const violation = violationOf(story, 'both', ['w9.20', 'w9.21', 'w12.22'], 229)
  const once = cutOut(story.history(), violation)
  expect(cutOut(once, violation)).toEqual(once)
})

test('keeps a small history with its faults, outside effects and final state', () => {
  for (const { history, violation } of [lostUpdate(), lateHolder()]) expect(cutOut(history, violation)).toEqual(history)
})

test('drops faults of other times and workers, and keeps those of the database', () => {
  const story = new Story('wallet', 'Wallet:1')
    .tell(100, 'w1.1', 'asked')
    .tell(110, 'w1.1', 'done')
    .fault(10, 20, 'before', 'w1')
    .fault(90, 105, 'into', 'w1, w7')
    .fault(101, 102, 'elsewhere', 'w2')
    .fault(101, 102, 'restart', 'database')
    .fault(111, 120, 'after', 'w1')
  const { faults } = cutOut(story.history(), violationOf(story, '', ['w1.1'], 110))
  expect(faults.map(({ fault }) => fault)).toEqual(['into', 'restart'])
})

test('shows the last operations before a violation of the whole', () => {
  const story = busy()
  const cut = cutOut(story.history(), { ...violationOf(story, 'the total', [], 5000), key: '' })
  expect(byOperation(cut.entries).size).toBeGreaterThan(0)
  expect(cut.entries.every(({ at }) => at >= 980_000)).toBe(true)
})
