import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import * as errors from './errors.ts'

test('states the class name in every error', () => {
  const source = readFileSync(new URL('errors.ts', import.meta.url), 'utf8')
  const stated = [
    ...source.matchAll(/^export class (\w+) extends LockstepError \{\n {2}override readonly name = '(\w+)'$/gm),
  ]
  const classes = Object.keys(errors).filter((name) => name !== 'LockstepError')
  expect(stated.map(([, name]) => String(name)).toSorted()).toEqual(classes.toSorted())
  expect(stated.filter(([, name, text]) => name !== text)).toEqual([])
  expect(new errors.InvalidKeyError('It is empty.', { advice: 'Name a concept.' }).name).toBe('InvalidKeyError')
})
