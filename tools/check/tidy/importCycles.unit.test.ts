import { expect, test } from 'vitest'
import { importCycles } from './importCycles.ts'
import { treeOf } from './tree.ts'

const messages = (texts: Record<string, string>): string[] =>
  importCycles.find(treeOf(texts)).map(({ message }) => message)

test('accepts imports that go one way', () => {
  const texts = {
    'src/index.ts': `export { open } from './locks/index.ts'\n`,
    'src/locks/index.ts': `export { open } from './open.ts'\n`,
    'src/locks/open.ts': `import { InvalidOptionError } from '../errors.ts'\n`,
    'src/errors.ts': '',
  }
  expect(messages(texts)).toEqual([])
})

test('reports the shortest cycle of files, once, with the line where it begins', () => {
  const texts = {
    'src/locks/a.ts': `\nimport { b } from './b.ts'\n`,
    'src/locks/b.ts': `import { c } from './c.ts'\nimport { a } from './a.ts'\n`,
    'src/locks/c.ts': `import { a } from './a.ts'\n`,
  }
  const message = 'a cycle of files: src/locks/a.ts → src/locks/b.ts → src/locks/a.ts'
  expect(importCycles.find(treeOf(texts))).toEqual([{ file: 'src/locks/a.ts', line: 2, message }])
})

test('reports a cycle of files that is made of types', () => {
  const texts = {
    'src/locks/a.ts': `import type { B } from './b.ts'\n`,
    'src/locks/b.ts': `import { a } from './a.ts'\n`,
  }
  expect(messages(texts)).toEqual(['a cycle of files: src/locks/a.ts → src/locks/b.ts → src/locks/a.ts'])
})

test('reports a cycle of modules that is no cycle of files, types included', () => {
  const texts = {
    'src/locks/a.ts': `import type { B } from '../rows/b.ts'\n`,
    'src/rows/b.ts': '',
    'src/rows/c.ts': `import { d } from '../locks/d.ts'\n`,
    'src/locks/d.ts': '',
  }
  expect(messages(texts)).toEqual(['a cycle of modules: locks → rows → locks'])
})

test('ignores the imports of tests', () => {
  const texts = {
    'src/locks/a.ts': `import { b } from './b.ts'\n`,
    'src/locks/b.ts': '',
    'src/locks/b.unit.test.ts': `import { a } from './a.ts'\n`,
  }
  expect(messages(texts)).toEqual([])
})
