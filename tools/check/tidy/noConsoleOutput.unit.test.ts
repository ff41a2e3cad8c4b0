import { expect, test } from 'vitest'
import { noConsoleOutput } from './noConsoleOutput.ts'
import { treeOf } from './tree.ts'

test('console output in the library is found, with its line', () => {
  const tree = treeOf({ 'src/locks/acquire.ts': `\nconsole.log('held')\nprocess.stderr.write('x')\n` })
  expect(noConsoleOutput.find(tree).map(({ line }) => line)).toEqual([2, 3])
})

test('the command line may speak, tests may, and words about it are none', () => {
  const tree = treeOf({
    'src/cli/main.ts': 'console.log(1)',
    'src/locks/key.unit.test.ts': 'console.log(1)',
    'src/console/index.ts': `import { serve } from './console.ts' // console.log\nconst hint = 'console.log'`,
  })
  expect(noConsoleOutput.find(tree)).toEqual([])
})
