import { expect, test } from 'vitest'
import { drawnInto } from '../../graph/drawing.ts'
import { drawnGraph } from './drawnGraph.ts'
import { treeOf } from './tree.ts'

const sources = {
  'src/index.ts': `export { Lockstep } from './lockstep.ts'\n`,
  'src/lockstep.ts': `import { lock } from './rows/index.ts'\nimport { id } from './locks/index.ts'\n`,
  'src/rows/index.ts': `import { id } from '../locks/index.ts'\n`,
  'src/locks/index.ts': `import type { Code } from '../errors.ts'\n`,
  'src/errors.ts': '',
}
const empty = 'before\n\n<!-- import graph: begin, drawn by `npm run graph` -->\n<!-- import graph: end -->\n\nafter\n'

const messages = (page: string, more: Record<string, string> = {}): string[] =>
  drawnGraph.find(treeOf({ ...sources, ...more, 'ARCHITECTURE.md': page })).map(({ message }) => message)

function drawn(): string {
  const page = drawnInto(empty, treeOf(sources))
  if (page === undefined) throw new Error('the page has no marks')
  return page
}

test('draws the modules between the marks, without the arrows that follow from others', () => {
  expect(drawn().split('\n')).toEqual([
    'before',
    '',
    '<!-- import graph: begin, drawn by `npm run graph` -->',
    '',
    '```mermaid',
    'flowchart TD',
    '  locks["locks"]',
    '  lockstep["lockstep.ts, index.ts"]',
    '  rows["rows"]',
    '  shared["errors.ts, checkOptions.ts"]',
    '  locks -.-> shared',
    '  lockstep --> rows',
    '  rows --> locks',
    '```',
    '',
    '<!-- import graph: end -->',
    '',
    'after',
    '',
  ])
})

test('accepts a page that was just drawn', () => {
  expect(messages(drawn())).toEqual([])
})

test('reports a page whose graph is stale', () => {
  const more = { 'src/leases/index.ts': `import { id } from '../rows/index.ts'\n` }
  expect(messages(drawn(), more)).toEqual(['shows an old import graph: run `npm run graph`'])
})

test('reports a page without marks', () => {
  expect(messages('# Architecture\n')).toEqual(['has no marks for the import graph'])
})
