import { expect, test } from 'vitest'
import { buildLibrary, CommitMissingError } from './buildLibrary.ts'

test('names the commit that the clone does not have, and what to run', () => {
  const missing = '0123456789012345678901234567890123456789'
  expect(() => buildLibrary(missing)).toThrow(CommitMissingError)
  expect(() => buildLibrary(missing)).toThrow(`git fetch origin ${missing}`)
})
