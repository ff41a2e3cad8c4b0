import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { faults } from './faults/index.ts'
import { scenarios } from './scenarios/index.ts'

const guide = await readFile(new URL('../docs/guides/prove.md', import.meta.url), 'utf8')

/** The names in the first column of a table, under its heading. */
function listed(heading: string): string[] {
  const section = guide.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? ''
  return [...section.matchAll(/^\| `([a-z][a-z-]*)` \|/gm)].map(([, name]) => name as string)
}

test('the guide lists every scenario, and no other', () => {
  expect(listed('The scenarios')).toEqual(scenarios.map(({ name }) => name))
})

test('the guide lists every kind of fault, and no other', () => {
  expect(listed('The faults')).toEqual(faults.map(({ name }) => name))
})
