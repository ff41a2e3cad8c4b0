import { expect, test } from 'vitest'
import { moduleEssay } from './moduleEssay.ts'
import { treeOf } from './tree.ts'

const essay = '/**\n * One.\n * Two.\n * Three.\n */\nexport {}\n'

test('accepts a module whose entry file begins with an essay', () => {
  const tree = treeOf({
    'src/locks/index.ts': essay,
    'src/cli/main.ts': `#!/usr/bin/env node\n${essay}`,
    'src/index.ts': '',
  })
  expect(moduleEssay.find(tree)).toEqual([])
})

test('reports a short essay, a late one and a module without an entry file', () => {
  const tree = treeOf({
    'src/locks/index.ts': '/** Locks. */\nexport {}\n',
    'src/rows/index.ts': `export {}\n${essay}`,
    'src/once/getOrCreate.ts': essay,
  })
  expect(moduleEssay.find(tree).map(({ file }) => file)).toEqual([
    'src/locks/index.ts',
    'src/once/index.ts',
    'src/rows/index.ts',
  ])
})
