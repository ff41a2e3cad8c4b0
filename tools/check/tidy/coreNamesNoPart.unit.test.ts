import { expect, test } from 'vitest'
import { coreNamesNoPart } from './coreNamesNoPart.ts'
import { treeOf } from './tree.ts'

const findings = (texts: Record<string, string>): string[] =>
  coreNamesNoPart.find(treeOf(texts)).map(({ file, line, message }) => `${file}:${line} ${message.split(' ')[0]}`)

test.each([
  ['streams', 'const { streams } = plan'],
  ['shadowOf', 'shadowOf(schema, lock)'],
  ['LockRetention', "import type { LockRetention } from '../combine/index.ts'"],
  ['applyRollout', 'applyRollout(plan)'],
  ['outbox_last', 'const text = `SELECT outbox_last()`'],
  ['enqueuer', '// what the enqueuer needs'],
  ['observed', '// Observed keys are marked'],
])('reports %s in the core, with its line', (name, line) => {
  const found = findings({ 'src/transactions/open.ts': `\n${line}\n` })
  expect(found).toHaveLength(1)
  expect(found[0]?.toLowerCase()).toBe(`src/transactions/open.ts:2 ${name.toLowerCase()}`)
})

test('reports a file that is named after a feature', () => {
  expect(findings({ 'src/transactions/streamLocks.ts': '' })).toEqual(['src/transactions/streamLocks.ts:1 streamLocks'])
})

test('accepts the words in tests and in other modules', () => {
  const texts = {
    'src/transactions/nesting.pg.test.ts': 'const streams = []',
    'src/outbox/streamLocks.ts': 'const streams = []',
    'src/transactions/open.ts': '// It observes nothing, and the key is locked.',
  }
  expect(findings(texts)).toEqual([])
})
