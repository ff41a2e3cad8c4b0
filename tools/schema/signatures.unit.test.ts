import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { sqlFiles } from '../../src/postgres/index.ts'
import { dumpFile } from './dump.ts'
import { brokenRules, type DescribedFiles, listSignatures, signaturesFile } from './signatures.ts'

const ours = { files: sqlFiles(), description: await readFile(dumpFile, 'utf8') }

test('keeps every function signature of the previous release', async () => {
  expect(brokenRules(await readFile(signaturesFile, 'utf8'), ours)).toEqual([])
})

const FIRST = { name: 'tables/0001_first.sql', text: '-- compatible-from: 1\n' }
const TEXT = 'CREATE FUNCTION :"schema".price(item integer) RETURNS integer …'

function planted(description: string, text = TEXT, more: DescribedFiles['files'] = []): DescribedFiles {
  return { files: [FIRST, { name: 'functions/price.sql', text }, ...more], description }
}

const PRICE = 'function price(item integer) returns integer language sql stable\n  body 0123\n'
const released = (release: string): string => listSignatures(planted(PRICE), release)

test.each([
  ['an argument of another type', 'function price(item bigint) returns integer language sql stable'],
  ['an argument of another name', 'function price(product integer) returns integer language sql stable'],
  ['one more argument', 'function price(item integer, day date DEFAULT now()) returns integer language sql stable'],
  ['another result', 'function price(item integer) returns bigint language sql stable'],
])('rejects %s under the same name', (_, description) => {
  const broken = brokenRules(released('none'), planted(description))
  expect(broken).toEqual([expect.stringContaining('price() has another signature')])
})

test('accepts another body, volatility or setting', () => {
  const description =
    'function price(item integer) returns integer language plpgsql volatile set jit=off\n  body 4567\n'
  expect(brokenRules(released('none'), planted(description))).toEqual([])
})

test('rejects a function that is gone, unless it was superseded in the previous release', () => {
  expect(brokenRules(released('1.0.0'), planted(''))).toEqual([expect.stringContaining('price() is gone')])
  const superseded = planted(PRICE, `-- Superseded by price_of() since 1.1.\n${TEXT}`)
  expect(brokenRules(listSignatures(superseded, '1.1.0'), planted(''))).toEqual([expect.stringContaining('Add a')])
  const next = { name: 'tables/0002_without.sql', text: '-- compatible-from: 1\n' }
  expect(brokenRules(listSignatures(superseded, '1.1.0'), planted('', TEXT, [next]))).toEqual([])
})

test('rejects another text of a released function without a new version of the schema', () => {
  const text = `-- New.\n${TEXT}`
  expect(brokenRules(released('1.0.0'), planted(PRICE, text))).toEqual([
    expect.stringContaining('Add a numbered file to sql/tables'),
  ])
  const next = { name: 'tables/0002_functions.sql', text: '-- compatible-from: 1\n' }
  expect(brokenRules(released('1.0.0'), planted(PRICE, text, [next]))).toEqual([])
  expect(brokenRules(released('none'), planted(PRICE, text))).toEqual([])
})
