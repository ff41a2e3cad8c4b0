import { expect, test } from 'vitest'
import { withoutSkippedLevels } from './headingLevels.ts'

test('gives members the level below their declaration, and leaves all other lines', () => {
  const page = ['# Page', '### events', '###### one', '###### two', '```sh', '# a comment', '```', '### next', '#none']
  expect(withoutSkippedLevels(page.join('\n')).split('\n')).toEqual([
    '# Page',
    '## events',
    '### one',
    '### two',
    '```sh',
    '# a comment',
    '```',
    '## next',
    '#none',
  ])
})
