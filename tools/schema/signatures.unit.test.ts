import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { readSqlFiles, type SqlFiles } from '../../src/postgres/index.ts'
import { brokenRules, listSignatures, signaturesFile } from './signatures.ts'

const ours = await readSqlFiles()

test('no function has another signature than in the previous release, and none is gone', async () => {
  expect(brokenRules(await readFile(signaturesFile, 'utf8'), ours)).toEqual([])
})

const planted: SqlFiles = {
  tables: { '0001_first.sql': '-- compatible-from: 1\n' },
  functions: { 'price.sql': 'CREATE FUNCTION :"schema".price(item integer) RETURNS integer …' },
  description: 'function price(item integer) returns integer language sql stable\n  body 0123\n',
}

function changed(description: string, text = planted.functions['price.sql'] as string): SqlFiles {
  return { ...planted, functions: { 'price.sql': text }, description }
}

test.each([
  ['an argument of another type', 'function price(item bigint) returns integer language sql stable'],
  ['an argument of another name', 'function price(product integer) returns integer language sql stable'],
  ['one more argument', 'function price(item integer, day date DEFAULT now()) returns integer language sql stable'],
  ['another result', 'function price(item integer) returns bigint language sql stable'],
])('rejects %s under the same name', (_, description) => {
  const broken = brokenRules(listSignatures(planted, 'none'), changed(description))
  expect(broken).toEqual([expect.stringContaining('price() has another signature')])
})

test('accepts another body, volatility or setting', () => {
  const description =
    'function price(item integer) returns integer language plpgsql volatile set jit=off\n  body 4567\n'
  expect(brokenRules(listSignatures(planted, 'none'), changed(description))).toEqual([])
})

test('rejects a function that is gone, unless it was superseded in the previous release', () => {
  expect(brokenRules(listSignatures(planted, '1.0.0'), { ...planted, description: '' })).toEqual([
    expect.stringContaining('price() is gone'),
  ])
  const superseded = changed(
    planted.description,
    `-- Superseded by price_of() since 1.1.\n${planted.functions['price.sql']}`,
  )
  expect(brokenRules(listSignatures(superseded, '1.1.0'), { ...superseded, description: '' })).toEqual([])
})

test('rejects another text of a released function without a new version of the schema', () => {
  const text = `-- New.\n${planted.functions['price.sql']}`
  const released = listSignatures(planted, '1.0.0')
  const next = changed(planted.description, text)
  expect(brokenRules(released, next)).toEqual([expect.stringContaining('Add a numbered file to sql/tables')])
  const tables = { ...planted.tables, '0002_functions.sql': '-- compatible-from: 1\n' }
  expect(brokenRules(released, { ...next, tables })).toEqual([])
  expect(brokenRules(listSignatures(planted, 'none'), next)).toEqual([])
})
