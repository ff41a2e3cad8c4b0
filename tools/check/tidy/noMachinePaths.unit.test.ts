import { expect, test } from 'vitest'
import { noMachinePaths } from './noMachinePaths.ts'
import { treeOf } from './tree.ts'

// Put together here, or this very file would be found.
function path(...parts: string[]): string {
  return ['', ...parts].join('/')
}

test.each([path('home', 'ada', 'lockstep'), path('root', '.cache'), path('work', 'main'), path('Users', 'ada')])(
  '%s is found',
  (planted) => {
    const tree = treeOf({ 'docs/a.md': `\nsee ${planted}\n`, 'src/a.ts': `'${planted}'` })
    expect(noMachinePaths.find(tree).map(({ line }) => line)).toEqual([2, 1])
  },
)

test('addresses and relative paths are none', () => {
  const text = `https://example.org${path('home', 'x')} docs${path('work', 'x')} ./work/x ${path('usr', 'bin', 'env')}`
  expect(noMachinePaths.find(treeOf({ 'docs/a.md': text }))).toEqual([])
})
