import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { scanStatements } from './statementScanner.ts'

const database = await testDatabase({ leakGuard: false })
const client = new pg.Client({ connectionString: database.url })
beforeAll(() => client.connect())
afterAll(() => client.end())

/** Signs that mean something to the lexer, and some that do not. */
const sign = fc.constantFrom(
  `'`,
  '"',
  '$',
  ';',
  '\\',
  '/*',
  '*/',
  '--',
  '(',
  ')',
  'é',
  'e',
  'x',
  ' ',
  '\n',
  'COMMIT',
  '$$',
  '$q$',
)
const content = fc.array(sign, { maxLength: 8 }).map((signs) => signs.join(''))

const literal = fc.oneof(
  content.map((text) => `'${text.replaceAll(`'`, `''`)}'`),
  content.map((text) => `E'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`),
  content.map((text) => `e'${text.replaceAll('\\', '').replaceAll(`'`, `''`)}'`),
  content.map((text) => `$$${text.replaceAll('$', '')}$$`),
  content.map((text) => `$tag$${text.replaceAll('$tag$', '').replace(/\$$/, '')}$tag$`),
  content.map((text) => `U&'${text.replaceAll('\\', '').replaceAll(`'`, `''`)}'`),
  fc.constantFrom('1', '1.5', '(2)', '(SELECT 3)', '1::text', `B'101'`, `N'x'`),
)
const alias = fc.oneof(
  content.map((text) => `AS "x${text.replaceAll('"', '""')}"`),
  fc.constantFrom('AS a$b$', 'AS end', 'AS begin', 'AS é', ''),
)
const space = fc.oneof(
  fc.constantFrom(' ', '\n', '\t', ' /* ; */ ', " /* a /* ; */ ' */ ", ' -- ; COMMIT\n', " -- ' \n"),
  content.map((text) => ` --${text.replaceAll('\n', '')}\n`),
)
const statement = fc.oneof(
  {
    arbitrary: fc.tuple(literal, space, alias).map(([value, gap, name]) => `SELECT${gap}${value}${gap}${name}${gap}`),
    weight: 9,
  },
  { arbitrary: fc.constantFrom('', ' ', '-- nothing\n', '/* ; */'), weight: 1 },
)

test('splits texts as the server does', async () => {
  let understood = 0
  await fc.assert(
    fc.asyncProperty(fc.array(statement, { minLength: 1, maxLength: 4 }), async (statements) => {
      const text = statements.join(';')
      let results: unknown
      try {
        results = await client.query(text)
      } catch {
        // The server takes no part of a text that it cannot read.
        return
      }
      const count = (Array.isArray(results) ? results : [results]).filter(
        (each) => (each as pg.QueryResult).command !== null,
      ).length
      expect(scanStatements(text), text).toHaveLength(count)
      understood++
    }),
    { numRuns: 1000 },
  )
  expect(understood).toBeGreaterThan(500)
})

test('reads the body of a function as the server does', async () => {
  const bodies = [
    'BEGIN ATOMIC SELECT 1; SELECT 2; END',
    'BEGIN ATOMIC SELECT CASE WHEN true THEN 1 ELSE 2 END; END',
    'BEGIN ATOMIC SELECT 1 AS end; SELECT CASE 1 WHEN 1 THEN 1 END AS case; END',
    'BEGIN ATOMIC; END',
    'RETURN 1',
    'AS $$ SELECT 1; SELECT 2 $$ LANGUAGE sql',
  ]
  for (const body of bodies) {
    const text = `CREATE OR REPLACE FUNCTION pg_temp.f() RETURNS int ${body}; SELECT 1`
    const results = await client.query(text).then(
      (found) => found as unknown as unknown[],
      () => undefined,
    )
    if (results !== undefined) expect(scanStatements(text), text).toHaveLength(results.length)
    await client.query('DROP FUNCTION IF EXISTS pg_temp.f()')
  }
})
