import { expect, test } from 'vitest'
import type { CellResult } from './cell.ts'
import { markdownTable, plainTable } from './table.ts'

const green = { passed: true, tests: 123, skipped: 0, seconds: 41 }
const results: CellResult[] = [
  { ...green, postgres: '14.23', runtime: 'Node 20.20.2' },
  { ...green, postgres: '14.23', runtime: 'Node 24.21.0', skipped: 2 },
  { ...green, postgres: '18.4', runtime: 'Node 20.20.2', passed: false, reason: 'why' },
]

test('aligns the columns of the plain table', () => {
  expect(plainTable(results)).toBe(
    [
      '                  Node 20.20.2         Node 24.21.0',
      '----------------  -------------------  -------------------------------',
      'PostgreSQL 14.23  pass 123 tests 41 s  pass 123 tests, 2 skipped, 41 s',
      'PostgreSQL 18.4   FAIL',
    ].join('\n'),
  )
})

test('prints a Markdown table', () => {
  expect(markdownTable(results)).toBe(
    [
      '|  | Node 20.20.2 | Node 24.21.0 |',
      '| --- | --- | --- |',
      '| PostgreSQL 14.23 | pass 123 tests 41 s | pass 123 tests, 2 skipped, 41 s |',
      '| PostgreSQL 18.4 | FAIL |  |',
    ].join('\n'),
  )
})
