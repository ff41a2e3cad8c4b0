import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { GENERATED } from '../../tools/schema/generated.ts'
import { forSchema, functionsIn, migrationsIn, schemaIdentifier, schemaText } from './migrations.ts'
import { sqlFiles } from './sqlFiles.ts'

const hostile = [
  `x$create$||evil()||$create$`,
  `a$$b`,
  `a'b`,
  `a"b`,
  'a\\b',
  'a%sb',
  '<slot>',
  'ü💥',
  ':"schema"',
  'Order',
]

const files = sqlFiles()

test.each(hostile)('puts no raw text of the schema name into a migration or a function: %j', (schema) => {
  for (const { text, name } of [...migrationsIn(files), ...functionsIn(files)]) {
    const script = forSchema(text, schema)
    // As often as before.
    const before = schema === ':"schema"' ? 0 : text.split(schema).length - 1
    expect(script.split(schema).length - 1, name).toBe(before)
    expect(script).not.toMatch(/:["']schema/)
  }
})

test('has generated functions that match their templates; `npm run schema` writes them', () => {
  const texts = new Map(files.map(({ name, text }) => [name, text]))
  for (const [file, text] of Object.entries(GENERATED)) expect(texts.get(`functions/${file}`), file).toBe(text)
})

test.each([
  ['two functions', 'CREATE FUNCTION :"schema".one() …\nCREATE FUNCTION :"schema".two() …'],
  ['another function', 'CREATE FUNCTION :"schema".two() …'],
  ['no function', 'SELECT 1'],
  ['a function that it replaces', 'CREATE OR REPLACE FUNCTION :"schema".one() …'],
])('rejects a file with %s', (_, text) => {
  expect(() => functionsIn([{ name: 'functions/one.sql', text }])).toThrow('one.sql must create one function')
})

test('creates every function in its own file', () => {
  for (const { name, text } of [...migrationsIn(files), ...functionsIn(files)]) {
    // These make the trigger functions of guards and imports, whose columns are the table's.
    if (['guard_add', 'outbox_import_cut'].includes(name)) continue
    const built = text.replaceAll(/^CREATE FUNCTION :"schema"\./gm, '').match(/CREATE (OR REPLACE )?FUNCTION/)
    expect(built, name).toBeNull()
  }
})

test('writes names with letters, digits, backslashes and quotes only', () => {
  for (const schema of hostile) {
    expect(schemaIdentifier(schema)).toMatch(/^U&"[\\+0-9a-f]+"$/)
    expect(schemaText(schema)).toMatch(/^convert_from\(decode\('[0-9a-f]+', 'hex'\), 'UTF8'\)$/)
  }
})

test('keeps a plain name readable', () => {
  expect(forSchema(`:"schema".a :'schema' :b'schema' :'schema.outbox_slot'::regclass`, 'lockstep')).toBe(
    `"lockstep".a 'lockstep' decode('6c6f636b73746570', 'hex') '"lockstep".outbox_slot'::regclass`,
  )
})

// Roles have no right on tables: a statement of the library that names one works for the owner alone.
test('names tables and sequences only in migrations', () => {
  const dump = readFileSync(new URL('../../sql/schema.sql', import.meta.url), 'utf8')
  const relations = [...dump.matchAll(/^(?:unlogged )?(?:table|sequence) (\w+)/gm)].map(([, name]) => name)
  expect(relations).toContain('leases')
  const statement = new RegExp(String.raw`\$\{\w*[sS]chema\w*\}\.(${relations.join('|')})\b(?!\()`, 'g')
  const sources = readdirSync(new URL('../', import.meta.url), { recursive: true, encoding: 'utf8' })
  const named = sources
    .filter((file) => file.endsWith('.sql.ts'))
    .flatMap((file) =>
      [...readFileSync(new URL(`../${file}`, import.meta.url), 'utf8').matchAll(statement)].map(
        ([, name]) => `${file}: ${name}`,
      ),
    )
  expect([...new Set(named)].toSorted()).toEqual([
    'postgres/postgres.sql.ts: epoch',
    'postgres/postgres.sql.ts: functions',
    'postgres/postgres.sql.ts: migrations',
    'testing/testing.sql.ts: leases',
    'testing/testing.sql.ts: lock_names',
  ])
})
