import { expect, test } from 'vitest'
import { fileLength } from './fileLength.ts'
import { treeOf } from './tree.ts'

test('400 lines are enough, 401 are too many', () => {
  const tree = treeOf({
    'src/enough.ts': 'a\n'.repeat(400),
    'src/long.ts': 'a\n'.repeat(401),
    'docs/long.md': 'a\n'.repeat(900),
    'sql/schema.sql': 'a\n'.repeat(900),
  })
  expect(fileLength.find(tree).map(({ file }) => file)).toEqual(['src/long.ts'])
})
