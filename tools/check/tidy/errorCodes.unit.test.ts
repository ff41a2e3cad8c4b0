import { expect, test } from 'vitest'
import { errorCodes } from './errorCodes.ts'
import { treeOf } from './tree.ts'

const source = `/** LOCKSTEP_IN_A_COMMENT is none */
export class A extends Error { readonly code = 'LOCKSTEP_A' }
export class B extends Error { readonly code = 'LOCKSTEP_B' }
`

test('reports an undocumented code and a documented code that does not exist', () => {
  const tree = treeOf({ 'src/errors.ts': source, 'docs/reference/errors.md': '## LOCKSTEP_A\n\n## LOCKSTEP_C\n' })
  expect(errorCodes.find(tree)).toEqual([
    { file: 'src/errors.ts', line: 3, message: 'LOCKSTEP_B is not in docs/reference/errors.md' },
    { file: 'docs/reference/errors.md', line: 3, message: 'LOCKSTEP_C is not in src/errors.ts' },
  ])
})

test('reports codes without a page, and needs no page without codes', () => {
  expect(errorCodes.find(treeOf({ 'src/errors.ts': source }))).toHaveLength(2)
  expect(errorCodes.find(treeOf({}))).toEqual([])
})

test('accepts codes that match the page', () => {
  const tree = treeOf({ 'src/errors.ts': source, 'docs/reference/errors.md': '`LOCKSTEP_A`, `LOCKSTEP_B`' })
  expect(errorCodes.find(tree)).toEqual([])
})
