import { expect, test } from 'vitest'
import { declaredIn, withoutMentioned } from '../api/reports.ts'
import { reportFaults } from './api.ts'

test('accepts an unchanged report', () => {
  expect(reportFaults('http.api.md', 'export const a: 1;\n', 'export const a: 1;\n')).toEqual([])
})

test('reports changed lines, and the command that updates the report', () => {
  const [fault = ''] = reportFaults('http.api.md', 'export const a: 1;\nexport const b: 1;\n', 'export const a: 1;\n')
  expect(fault).toContain('npm run api')
  expect(fault).toContain('- export const b: 1;')
  expect(fault).not.toContain('export const a')
})

test('reports a missing report, and lines in another order', () => {
  expect(reportFaults('new.api.md', '', 'export const a: 1;\n')).toHaveLength(1)
  expect(reportFaults('new.api.md', 'a\nb', 'b\na')).toHaveLength(1)
})

const report = `## API Report File

\`\`\`ts

import type { A } from 'a';

// @public
export class Made {
    make(): Mentioned;
}

// @public
interface Mentioned {
    readonly own: Known_2;
}

// @public (undocumented)
type Known_2 = string;

// (No @packageDocumentation comment for this package)

\`\`\`
`

test('keeps in a report its exports and the types that no other report has', () => {
  expect([...declaredIn(report)]).toEqual(['Made', 'Mentioned', 'Known'])
  const kept = withoutMentioned(report, new Set(['Known', 'Made']))
  expect(kept).toContain('class Made')
  expect(kept).toContain('interface Mentioned')
  expect(kept).not.toContain('type Known')
  expect(kept).toMatch(/^## API Report File\n\n```ts\n\nimport/)
  expect(kept).toMatch(/```\n$/)
})
