import { expect, test } from 'vitest'
import { forbiddenTexts } from './forbiddenText.ts'
import { treeOf } from './tree.ts'

const findings = (file: string, text: string): string[] =>
  forbiddenTexts.flatMap((rule) => rule.find(treeOf({ [file]: text })).map(({ line }) => `${rule.name}:${line}`))

// Put together here: this rule also reads this file.
const path = (...parts: string[]): string => ['', ...parts].join('/')
const lock = JSON.stringify({ packages: { 'node_modules/a': { resolved: 'https://registry.example/a.tgz' } } })

test.each([
  ['src/locks/utils.ts', '', 'descriptive-names:1'],
  ['src/types.d.ts', '', 'descriptive-names:1'],
  ['tools/helpers/port.ts', '', 'descriptive-names:1'],
  ['src/misc.unit.test.ts', '', 'descriptive-names:1'],
  ['src/transactions/open.ts', '\nconst { streams } = plan', 'core-names-no-part:2'],
  ['src/transactions/open.ts', '\nshadowOf(schema, lock)', 'core-names-no-part:2'],
  ['src/transactions/open.ts', "import type { LockRetention } from '../combine/index.ts'", 'core-names-no-part:1'],
  ['src/transactions/open.ts', 'applyRollout(plan)', 'core-names-no-part:1'],
  ['src/transactions/open.ts', 'const text = `SELECT outbox_last()`', 'core-names-no-part:1'],
  ['src/transactions/open.ts', '// what the enqueuer needs', 'core-names-no-part:1'],
  ['src/transactions/open.ts', '// Observed keys are marked', 'core-names-no-part:1'],
  ['src/transactions/streamLocks.ts', '', 'core-names-no-part:1'],
  ['docs/a.md', `\nsee ${path('home', 'ada', 'lockstep')}\n`, 'no-machine-paths:2'],
  ['src/a.ts', `'${path('root', '.cache')}'`, 'no-machine-paths:1'],
  ['src/a.ts', `'${path('work', 'main')}'`, 'no-machine-paths:1'],
  ['docs/a.md', path('Users', 'ada'), 'no-machine-paths:1'],
  ['package-lock.json', lock, 'no-download-addresses:1'],
  ['tools/matrix/package-lock.json', lock, 'no-download-addresses:1'],
  ['bench/.npmrc', 'fund=false\nregistry=https://registry.example\n', 'no-registries:2'],
])('reports in %s with %j: %s', (file, text, finding) => {
  expect(findings(file, text)).toEqual([finding])
})

test.each([
  ['src/locks/key.ts', ''],
  ['docs/types.md', ''],
  ['src/transactions/nesting.pg.test.ts', 'const streams = []'],
  ['src/outbox/streamLocks.ts', 'const streams = []'],
  ['src/transactions/open.ts', '// It observes nothing, and the key is locked.'],
  ['docs/a.md', `https://example.org${path('home', 'x')} docs${path('work', 'x')} ./work/x ${path('usr', 'bin')}`],
  ['package-lock.json', JSON.stringify({ a: { resolved: 'packages/a', link: true }, b: { integrity: 'sha512-x' } })],
  ['.npmrc', 'omit-lockfile-registry-resolved=true\n'],
])('accepts %s with %j', (file, text) => {
  expect(findings(file, text)).toEqual([])
})
