import { expect, test } from 'vitest'
import { roomEssay } from './roomEssay.ts'
import { treeOf } from './tree.ts'

const essay = '/**\n * One.\n * Two.\n * Three.\n */\nexport {}\n'

test('a room with an essay at its door is green', () => {
  const tree = treeOf({
    'src/locks/index.ts': essay,
    'src/cli/main.ts': `#!/usr/bin/env node\n${essay}`,
    'src/index.ts': '',
  })
  expect(roomEssay.find(tree)).toEqual([])
})

test('a short essay, a late one and a room without a door are found', () => {
  const tree = treeOf({
    'src/locks/index.ts': '/** Locks. */\nexport {}\n',
    'src/rows/index.ts': `export {}\n${essay}`,
    'src/once/getOrCreate.ts': essay,
  })
  expect(roomEssay.find(tree).map(({ file }) => file)).toEqual([
    'src/locks/index.ts',
    'src/once/index.ts',
    'src/rows/index.ts',
  ])
})
