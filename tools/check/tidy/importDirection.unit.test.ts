import { expect, test } from 'vitest'
import { importDirection } from './importDirection.ts'
import { treeOf } from './tree.ts'

const manifest = JSON.stringify({ exports: { '.': './dist/index.js', './kafka': './dist/sinks/kafka.js' } })

function messages(file: string, specifier: string): string[] {
  const tree = treeOf({ 'package.json': manifest, [file]: `import { a } from '${specifier}'\n` })
  return importDirection.find(tree).map(({ message }) => message)
}

test.each([
  ['src/locks/acquire.ts', '../postgres/index.ts'],
  ['src/locks/acquire.ts', './locks.sql.ts'],
  ['src/locks/acquire.ts', '../errors.ts'],
  ['src/locks/acquire.ts', '../observe/index.ts'],
  ['src/sinks/kafka.ts', '../outbox/index.ts'],
  ['src/outbox/enqueue.ts', '../leases/index.ts'],
  ['src/cli/main.ts', '../index.ts'],
  ['src/cli/migrate.ts', '../postgres/index.ts'],
  ['src/cli/dispatch.ts', '../sinks/kafka.ts'],
  ['src/index.ts', './locks/index.ts'],
  ['src/lockstep.ts', './errors.ts'],
  ['src/locks/key.unit.test.ts', '../transactions/begin.ts'],
  ['src/locks/key.pg.test.ts', '../../tools/server/postgres.ts'],
  ['desk/main.ts', 'pg-lockstep'],
  ['desk/main.ts', 'pg-lockstep/kafka'],
  ['proofs/attacks/main.ts', '../tools/server/postgres.ts'],
  ['tools/check/main.ts', '../../src/errors.ts'],
  ['src/locks/acquire.ts', 'node:crypto'],
  ['src/locks/acquire.ts', '../checkOptions.ts'],
  ['src/observe/otel.ts', '../checkOptions.ts'],
  ['src/console/consoleOptions.ts', '../checkOptions.ts'],
  ['src/cli/commandLine.ts', '../nearest.ts'],
  ['src/checkOptions.ts', './errors.ts'],
  ['src/errors.ts', './lockstepError.ts'],
])('%s may import %s', (file, specifier) => {
  expect(messages(file, specifier)).toEqual([])
})

test('observe may take types from errors.ts, however many', () => {
  const names = Array.from({ length: 40 }, (_, index) => `LongName${index}`).join(',\n  ')
  const tree = treeOf({ 'src/observe/events.ts': `import type {\n  ${names},\n} from '../errors.ts'\n` })
  expect(importDirection.find(tree)).toEqual([])
})

test.each([
  ['src/postgres/migrate.ts', '../locks/index.ts'],
  ['src/locks/acquire.ts', '../postgres/connection.ts'],
  ['src/locks/acquire.ts', '../postgres/postgres.sql.ts'],
  ['src/outbox/enqueue.ts', '../inbox/index.ts'],
  ['src/rows/lock.ts', '../leases/index.ts'],
  ['src/observe/events.ts', '../postgres/index.ts'],
  ['src/observe/events.ts', '../errors.ts'],
  ['src/errors.ts', './locks/index.ts'],
  ['src/errors.ts', './checkOptions.ts'],
  ['src/locks/acquire.ts', '../lockstepError.ts'],
  ['src/checkOptions.ts', './locks/index.ts'],
  ['src/locks/acquire.ts', '../lockstep.ts'],
  ['src/locks/acquire.ts', '../index.ts'],
  ['src/locks/acquire.ts', 'pg-lockstep'],
  ['src/locks/acquire.ts', '../../tools/server/postgres.ts'],
  ['src/lockstep.ts', './locks/acquire.ts'],
  ['src/cli/main.ts', '../locks/acquire.ts'],
  ['src/cli/main.ts', '../errors.ts'],
  ['src/attic/box.ts', '../locks/index.ts'],
  ['desk/main.ts', '../src/index.ts'],
  ['examples/queue.ts', '../src/outbox/index.ts'],
  ['bench/main.ts', 'pg-lockstep/dist/index.js'],
  ['desk/main.ts', 'pg-lockstep/leases'],
])('%s may not import %s', (file, specifier) => {
  expect(messages(file, specifier)).toHaveLength(1)
})
