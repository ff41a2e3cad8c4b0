import { expect, test } from 'vitest'
import { descriptiveNames } from './descriptiveNames.ts'
import { treeOf } from './tree.ts'

test('buckets are found by file and by folder', () => {
  const names = ['src/locks/utils.ts', 'src/types.d.ts', 'tools/helpers/port.ts', 'src/misc.unit.test.ts']
  const tree = treeOf(Object.fromEntries([...names, 'src/locks/key.ts', 'docs/types.md'].map((name) => [name, ''])))
  expect(descriptiveNames.find(tree).map(({ file }) => file)).toEqual(names.toSorted())
})
