import { expect, test } from 'vitest'
import { importsOf, scan } from './scan.ts'

function texts(source: string): string[] {
  return scan(source).literals.map(({ text }) => text)
}

test('strings are told from comments', () => {
  expect(texts(`const a = 'one' // 'two'\n/* "three" */ const b = "four"`)).toEqual(['one', 'four'])
})

test('an escaped quote does not end a string', () => {
  expect(texts(String.raw`const a = 'it\'s'; const b = 'next'`)).toEqual([String.raw`it\'s`, 'next'])
})

test('a template may hold code, which may hold a template', () => {
  const source = 'const a = `x ${f(`y ${"z"}`, { b: 1 })} end`\nconst c = "after"'
  expect(texts(source)).toEqual(['z', 'y ${}', 'x ${} end', 'after'])
})

test('a regular expression with quotes opens no string, and a division no regular expression', () => {
  expect(texts(`const a = /['"\`/]/.test(b); const c = 'one'`)).toEqual(['one'])
  expect(texts(`const a = (b) / c; const d = 'one' // e / f`)).toEqual(['one'])
})

test('lines are those of the opening quote', () => {
  expect(scan('\n`a\nb`\n"c"').literals.map(({ line }) => line)).toEqual([2, 4])
})

test('code keeps its lines and loses its literals', () => {
  expect(scan('a("console.log")\n// console.log\nb()').code).toBe('a(             )\n              \nb()')
})

test('every kind of import is seen', () => {
  const source = `
import a from './a.ts'
import type { B } from './b.ts'
import './c.ts'
export * from './d.ts'
type E = import('./e.ts').E
const f = await import('./f.ts')
const not = Array.from('./g.ts')
`
  expect(importsOf(source).map(({ specifier }) => specifier)).toEqual(
    ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => `./${name}.ts`),
  )
})
