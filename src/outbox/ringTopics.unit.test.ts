import { expect, test } from 'vitest'
import { readTopics, writeTopics } from './ringTopics.ts'

const read = (text: string): ReadonlySet<string> | undefined => readTopics(/ t:(\S+)/.exec(text)?.[1])

test('topics of a ring come back, whatever is in their names', () => {
  const topics = new Set(['trades', 'a b', 'x,y', 'ü%', "it's t:1", '\n'])
  expect(read(writeTopics(topics))).toEqual(topics)
})

test('a ring without topics, with too many, or with ones that cannot be read, stands for all', () => {
  expect(writeTopics(undefined)).toBe('')
  expect(writeTopics(new Set(Array.from({ length: 100 }, (_, n) => `topic ${n}`)))).toBe('')
  expect(readTopics(undefined)).toBeUndefined()
  expect(readTopics('%')).toBeUndefined()
})
