import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { forSchema, readMigrations, schemaIdentifier, schemaText } from './migrations.ts'

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

test.each(hostile)('%j: no text of the name is in a migration', (schema) => {
  for (const { text, version } of readMigrations()) {
    const script = forSchema(text, schema)
    // As often as before: `<slot>` and such are ours.
    const before = schema === ':"schema"' ? 0 : text.split(schema).length - 1
    expect(script.split(schema).length - 1, `migration ${version}`).toBe(before)
    expect(script).not.toMatch(/:["']schema/)
  }
})

test('what stands for a name is of letters, digits, backslashes and quotes alone', () => {
  for (const schema of hostile) {
    expect(schemaIdentifier(schema)).toMatch(/^U&"[\\+0-9a-f]+"$/)
    expect(schemaText(schema)).toMatch(/^convert_from\(decode\('[0-9a-f]+', 'hex'\), 'UTF8'\)$/)
  }
})

test('a plain name stays readable', () => {
  expect(forSchema(`:"schema".a :'schema' :'schema.outbox_slot'::regclass`, 'lockstep')).toBe(
    `"lockstep".a 'lockstep' '"lockstep".outbox_slot'::regclass`,
  )
})

// Roles have no right on tables: a statement of the library that names one works for the owner alone.
test('no statement of the library names a table or a sequence, but for migrations', () => {
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
  expect([...new Set(named)]).toEqual(['postgres/postgres.sql.ts: migrations'])
})
