import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { firstWord, scanStatements } from './statementScanner.ts'

const firsts = (text: string): (string | undefined)[] => scanStatements(text).map(([first]) => first)

describe('scanStatements', () => {
  test.each<[string, string[]]>([
    ['', []],
    [' ; ;\n;', []],
    ['SELECT 1', ['select']],
    ['BEGIN;', ['begin']],
    ['SELECT 1; COMMIT', ['select', 'commit']],
    [`SELECT ';'; COMMIT`, ['select', 'commit']],
    [`SELECT 'it''s; COMMIT'`, ['select']],
    [`SELECT 'a\\'; COMMIT`, ['select', 'commit']],
    [`SELECT E'a\\'; COMMIT'`, ['select']],
    [`SELECT e'\\\\'; COMMIT`, ['select', 'commit']],
    [`SELECT E'''; COMMIT'`, ['select']],
    // PostgreSQL 14 reads a number and an escaped string here.
    [`SELECT 1e'\\'; COMMIT'`, ['select']],
    [`SELECT somee'\\'; COMMIT`, ['select', 'commit']],
    [`SELECT U&'\\0041'; COMMIT`, ['select', 'commit']],
    [`SELECT "a;b"";c"; COMMIT`, ['select', 'commit']],
    ['SELECT $$;COMMIT;$$; END', ['select', 'end']],
    ['SELECT $a$ $b$ ; $a$ ; COMMIT', ['select', 'commit']],
    ['SELECT $é$ ; $é$ ; COMMIT', ['select', 'commit']],
    // `$` inside a name opens nothing.
    ['SELECT a$b$ ; COMMIT; SELECT c$b$', ['select', 'commit', 'select']],
    ['SELECT $1; COMMIT; SELECT $1', ['select', 'commit', 'select']],
    ['SELECT 1 -- ; COMMIT\n; END', ['select', 'end']],
    ['SELECT 1 -- x\r; END', ['select', 'end']],
    ['SELECT 1 /* ; /* ; */ COMMIT; */; END', ['select', 'end']],
    ['CREATE RULE r AS ON INSERT TO t DO ALSO (NOTIFY a; NOTIFY b); COMMIT', ['create', 'commit']],
    ['CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; COMMIT', ['create', 'commit']],
    [
      'CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 1 AS end, t.case FROM t; END; COMMIT',
      ['create', 'commit'],
    ],
    ['CREATE TABLE begin (atomic int); COMMIT', ['create', 'commit']],
    // What has no end is refused by the server as a whole.
    [`SELECT 'x; COMMIT`, ['select']],
    ['SELECT /* x; COMMIT', ['select']],
    ['SELECT $x$; COMMIT', ['select']],
    ['SELECT "x; COMMIT', ['select']],
    [`SELECT E'x; COMMIT\\`, ['select']],
  ])('splits %j into %j', (text, expected) => {
    expect(firsts(text)).toEqual(expected)
  })

  test('lowers words, and keeps strings and quoted names apart', () => {
    expect(scanStatements(`ROLLBACK /**/ TO "My""Own" 'x'`)).toEqual([['rollback', 'to', '"My"Own', `'`]])
  })

  test('finds every statement between any strings, comments and names', () => {
    const quoted = fc.string().map((text) => `'${text.replaceAll(`'`, `''`)}'`)
    const named = fc.string().map((text) => `"${text.replaceAll('"', '""')}"`)
    const escaped = fc.string().map((text) => `E'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`)
    const dollars = fc.string().map((text) => `$q$${text.replaceAll('$', '')}$q$`)
    const line = fc.string().map((text) => `--${text.replaceAll(/[\n\r]/g, '')}\n`)
    const block = fc.string().map((text) => `/*${text.replaceAll(/[*/]/g, '')}/*;*/;*/`)
    const hidden = fc.constantFrom(`'; COMMIT; '`, '$$; COMMIT; $$', '/* ; COMMIT; */', '"; COMMIT; "', '(; COMMIT;)')
    const noise = fc.oneof(
      quoted,
      named,
      escaped,
      dollars,
      line,
      block,
      hidden,
      fc.constantFrom('a', '1', '+', ',', '$1'),
    )
    const statement = fc.record({
      first: fc.constantFrom('select', 'commit', 'begin', 'insert'),
      noise: fc.array(noise, { maxLength: 6 }),
    })
    fc.assert(
      fc.property(fc.array(statement, { maxLength: 5 }), (statements) => {
        const text = statements.map(({ first, noise: rest }) => `${first.toUpperCase()} ${rest.join(' ')}`).join(';')
        expect(firsts(text)).toEqual(statements.map(({ first }) => first))
      }),
      { numRuns: 2000 },
    )
  })

  test('never hangs or throws', () => {
    const signs = fc.constantFrom(
      `'`,
      '"',
      '$',
      '$$',
      '$a$',
      '/*',
      '*/',
      '--',
      '\n',
      ';',
      '\\',
      'e',
      'E',
      '(',
      ')',
      'begin',
      ' ',
      'a',
    )
    fc.assert(
      fc.property(fc.array(signs, { maxLength: 40 }), (parts) => {
        const text = parts.join('')
        expect(scanStatements(text).length).toBeLessThanOrEqual(text.split(';').length)
        expect(typeof firstWord(text)).toBe('string')
      }),
      { numRuns: 5000 },
    )
  })

  test('reads a long text', () => {
    const long = `INSERT INTO t VALUES ${`('it''s'),`.repeat(200_000)} ('x'); COMMIT`
    expect(firsts(long)).toEqual(['insert', 'commit'])
  })
})

test.each([
  ['  select 1', 'select'],
  [';;COMMIT', 'commit'],
  ['/* a /* b */ c */ -- d\n\tRollback', 'rollback'],
  ['(select 1)', ''],
  ['', ''],
  ['-- only a comment', ''],
  ['\u00a0COMMIT', ''],
])('reads the first word of %j as %j', (text, word) => {
  expect(firstWord(text)).toBe(word)
})
