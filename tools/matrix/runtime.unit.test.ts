import { expect, test } from 'vitest'
import { runtimeVersion } from './runtimeVersion.ts'

// The matrix runs it in every cell: tests that a runner gave to another runtime would prove nothing of this one.
test('runs on the runtime that the matrix has chosen', () => {
  expect(runtimeVersion()).toBe(process.env['LOCKSTEP_RUNTIME'] ?? `node ${process.versions.node}`)
})
