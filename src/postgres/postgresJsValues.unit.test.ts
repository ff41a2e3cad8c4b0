import postgres from 'postgres'
import { expect, test } from 'vitest'
import { undefinedAmong } from './postgresJsValues.ts'

const sql = postgres('postgres://127.0.0.1:1/x')

test('finds an undefined value with a type', () => {
  expect(undefinedAmong(sql as never, [1, sql.typed(undefined as never, 23)])).toMatchObject({
    code: 'UNDEFINED_VALUE',
  })
  expect(undefinedAmong(sql as never, [sql.typed(1 as never, 23)])).toBeUndefined()
})

test('finds it where a minifier has renamed the class of postgres.js', () => {
  const { constructor } = sql.typed(undefined as never, 23) as unknown as { constructor: new () => object }
  class a extends constructor {}
  expect(undefinedAmong(sql as never, [new a()])).toMatchObject({ code: 'UNDEFINED_VALUE' })
})

test('takes an object without a prototype, and one with fields of the same names, as they are', () => {
  const values = [Object.create(null), { value: undefined, type: 23, array: undefined }]
  expect(undefinedAmong(sql as never, values)).toBeUndefined()
})
