import { expect, test } from 'vitest'
import { documentLinks } from './documentLinks.ts'
import { treeOf } from './tree.ts'

const target = {
  'docs/guides/locks.md': '# Locks\n\n## What `tx` is, and when\n\n## Again\n\n## Again\n',
  'sql/001.sql': '',
}

function messages(text: string): string[] {
  return documentLinks.find(treeOf({ ...target, 'docs/index.md': text })).map(({ message }) => message)
}

test.each([
  '[a](guides/locks.md)',
  '[a](guides/locks.md#what-tx-is-and-when)',
  '[a](guides/locks.md#again-1)',
  '[a](guides)',
  '[a](guides/)',
  '[a](../sql/001.sql "title")',
  '[a][b]\n\n[b]: ./guides/locks.md',
  '# Here\n\n[a](#here)',
  '[a](https://example.org/x.md) [b](mailto:a@example.org)',
  '`[a](nowhere.md)`',
  '```md\n[a](nowhere.md)\n```\n',
  '<a href="guides/locks.md">a</a>',
])('accepts %s', (text) => {
  expect(messages(text)).toEqual([])
})

test.each([
  ['[a](nowhere.md)', 'nowhere.md leads nowhere'],
  ['[a](guides/locks.md#no-such)', 'docs/guides/locks.md has no heading #no-such'],
  ['[a](#no-such)', 'docs/index.md has no heading #no-such'],
  ['[a][b]\n\n[b]: nowhere.md', 'nowhere.md leads nowhere'],
  ['![a](nowhere.png)', 'nowhere.png leads nowhere'],
  ['[a](../../elsewhere.md)', '../../elsewhere.md leaves the repository'],
  ['[a](/docs/guides/locks.md)', '/docs/guides/locks.md leaves the repository'],
])('reports %s', (text, message) => {
  expect(messages(text)).toEqual([message])
})
