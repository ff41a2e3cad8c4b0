import { expect, test } from 'vitest'
import { plainWords } from './plainWords.ts'
import { treeOf } from './tree.ts'

const findings = (file: string, text: string): string[] =>
  plainWords.find(treeOf({ [file]: text })).map(({ line, message }) => `${line} ${message.split(':')[0]}`)

test.each([
  ['docs/a.md', '\nWhoever holds the lock', '2 "Whoever"'],
  ['docs/a.md', 'The caller is told that it lost.', '1 "told"'],
  ['docs/a.md', 'Nobody waits.', '1 "Nobody"'],
  ['docs/a.md', 'A retry is dear.', '1 "dear"'],
  ['docs/a.md', 'The pause costs little.', '1 "costs little"'],
  ['docs/a.md', 'It begins anew.', '1 "anew"'],
  ['docs/a.md', 'It is mended.', '1 "mended"'],
  ['docs/a.md', 'What became of it is known.', '1 "became of"'],
  ['docs/a.md', 'The lock is given back.', '1 "given back"'],
  ['docs/a.md', 'Callers stand in line.', '1 "in line"'],
  ['docs/a.md', 'In another life of the server.', '1 "life"'],
  ['docs/a.md', 'The home of the account.', '1 "home"'],
  ['docs/a.md', 'The ground floor.', '1 "floor"'],
  ['docs/a.md', 'A guest in the pool.', '1 "guest"'],
  ['docs/a.md', 'The grounds of the decision.', '1 "grounds"'],
  ['docs/a.md', 'The way in fails.', '1 "way in"'],
  ['docs/a.md', 'Its patience ends.', '1 "patience"'],
  ['docs/a.md', 'The stay ends after 25 ms.', '1 "The stay"'],
  ['docs/a.md', 'Four wait places.', '1 "wait places"'],
  ['docs/a.md', 'Seeing locks.', '1 "Seeing"'],
  ['docs/a.md', 'The attack in small.', '1 "in small"'],
  ['docs/a.md', 'The holder, as far as it is known.', '1 "as far as it"'],
  ['docs/a.md', 'The key, or else the operation.', '1 "else"'],
  ['docs/a.md', 'Await it. Else it is refused.', '1 "Else"'],
  ['docs/a.md', 'No caller may wait.', '1 "No caller may"'],
  ['docs/a.md', 'The colour of the row.', '1 "colour"'],
  ['docs/a.md', 'It is recognised.', '1 "recognised"'],
  ['docs/a.md', 'Its events are put aside.', '1 "put aside"'],
  ['src/a.ts', '// Its events are put aside.', '1 "put aside"'],
  ['src/a.ts', '\n/**\n * Tells the driver.\n */', '3 "Tells"'],
  ['src/a.ts', "\ntest('ends nobody', fn)", '2 "nobody"'],
  ['src/a.ts', "\ntest.each([1])('ends nobody', fn)", '2 "nobody"'],
  ['src/a.ts', "throw new Error('The key was told twice.')", '1 "told"'],
  ['src/cli/a.ts', "const summary = 'the caller who comes second'", '1 "who comes"'],
  ['console/src/a.tsx', 'const a = <p>\nNobody waits.</p>', '2 "Nobody"'],
  ['src/a.sql.ts', 'const a = `\nSELECT 1 -- for everybody\n`', '2 "everybody"'],
  ['sql/functions/a.sql', 'SELECT 1;\n-- what became of it', '2 "became of"'],
  ['docs/a.yml', '# nobody', '1 "nobody"'],
])('reports in %s with %j: %s', (file, text, finding) => {
  expect(findings(file, text)).toEqual([finding])
})

test.each([
  ['docs/a.md', 'Two guests book one room. The home directory.'],
  ['docs/a.md', 'The receiver may or may not have it.'],
  ['docs/a.md', 'The user `nobody`.\n\n```ts\nif (a) b()\nelse c() // nobody\n```'],
  ['docs/a.md', 'It waits for nothing else. The lock may be free. The data stays there.'],
  ['src/a.pg.test.ts', "expect(error).toBe('There is no nobody')"],
  ['src/a.sql.ts', "const told = client.send('nobody', `SELECT life FROM incarnation`)"],
  ['sql/functions/a.sql', "SELECT life FROM incarnation WHERE name = 'nobody'"],
])('accepts %s with %j', (file, text) => {
  expect(findings(file, text)).toEqual([])
})
