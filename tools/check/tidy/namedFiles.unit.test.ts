import { expect, test } from 'vitest'
import { namedFiles } from './namedFiles.ts'
import { treeOf } from './tree.ts'

const tree = {
  'package.json': '{}',
  'src/locks/key.ts': '',
  'src/locks/locks.sql.ts': '',
  'sql/functions/enqueue.sql': '',
  'docs/guides/desk.md': '',
}

function messages(file: string, text: string): string[] {
  return namedFiles.find(treeOf({ ...tree, [file]: text })).map(({ message }) => message)
}

test.each([
  'See `src/locks/key.ts` and `src/locks/`.',
  'See `key.ts`, `locks/key.ts`, `package.json` and `*.sql.ts`.',
  'See `guides/desk.md`.',
  'Run `npx tsx src/locks/key.ts --watch`.',
  'It is built into `dist/lab`, next to `src/<module>/index.ts`.',
  'A key such as `Transfer:a/b`, a route such as `/openapi.json`, a call such as `pool.query()`.',
  'Write `counter.ts`.',
  '```\nsrc/locks/\n  key.ts          one operation\n  locks.sql.ts\n```\n',
  '```ts\nimport { a } from "src/nowhere.ts"\n```\n',
])('accepts in a page: %s', (text) => {
  expect(messages('docs/page.md', text)).toEqual([])
})

test.each([
  ['See `src/locks/acquire.ts`.', 'src/locks/acquire.ts'],
  ['See `src/attic/`.', 'src/attic/'],
  ['See `acquire.ts`.', 'acquire.ts'],
  ['See `sql/*.ts`.', 'sql/*.ts'],
  ['Run `npx tsx src/main.ts --watch`.', 'src/main.ts'],
  ['```sh\nnpx tsx src/main.ts\n```\n', 'src/main.ts'],
  ['```\nsrc/locks/\n  acquire.ts      one operation\n```\n', 'src/locks/acquire.ts'],
])('reports a file that does not exist: %s', (text, name) => {
  expect(messages('docs/page.md', text)).toEqual([`${name} does not exist`])
})

test('reports it with its line', () => {
  const text = '# Page\n\n```\nsrc/locks/\n  key.ts\n  acquire.ts\n```\n'
  expect(namedFiles.find(treeOf({ ...tree, 'README.md': text }))).toEqual([
    { file: 'README.md', line: 6, message: 'src/locks/acquire.ts does not exist' },
  ])
})

test.each([
  ['src/locks/a.ts', '// As in key.ts.\n/**\n * See src/locks/acquire.ts.\n */\n', 3],
  ['sql/functions/a.sql', '-- enqueue.sql\n-- has moved to acquire.sql\n', 2],
])('reports it in a comment of %s', (file, text, line) => {
  const findings = namedFiles.find(treeOf({ ...tree, [file]: text }))
  expect(findings).toEqual([{ file, line, message: expect.stringMatching(/acquire\.(ts|sql) does not exist/) }])
})

test('ignores strings and names of products', () => {
  const text = `const a = 'nowhere.ts' // postgres.js, Node.js, './sink.mjs', <module>.sql.ts and …/x.ts\n`
  expect(messages('src/locks/a.ts', text)).toEqual([])
})
