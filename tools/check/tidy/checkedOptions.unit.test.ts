import { expect, test } from 'vitest'
import { checkedOptions } from './checkedOptions.ts'
import { treeOf } from './tree.ts'

function lines(file: string, text: string): (number | undefined)[] {
  return checkedOptions.find(treeOf({ [file]: text })).map(({ line }) => line)
}

test('reports options without a list of names', () => {
  expect(lines('src/leases/a.ts', '\nexport interface LeaseOptions {}\nexport type ListOptions = {}\n')).toEqual([2, 3])
})

test('reports options beside a list of names of others', () => {
  const text = 'export interface LeaseOptions {}\nconst A: OptionNames<LeaseOptionsOfOld> = {}\n'
  expect(lines('src/leases/a.ts', text)).toEqual([1])
})

test.each([
  ['src/leases/a.ts', 'export interface LeaseOptions {}\nconst LEASE: OptionNames<LeaseOptions> = {}\n'],
  ['src/once/a.ts', 'export interface OnceOptions<V> {}\nconst ONCE: OptionNames<OnceOptions<never>> = {}\n'],
  ['src/observe/otelApi.ts', 'export interface InstrumentOptions {}\n'],
  ['src/cli/a.ts', 'export interface CommandOptions {}\n'],
  ['src/http/site.conformance.ts', 'export interface PostOptions {}\n'],
  ['desk/a.ts', 'export interface DeskOptions {}\n'],
])('accepts in %s: %s', (file, text) => {
  expect(lines(file, text)).toEqual([])
})
