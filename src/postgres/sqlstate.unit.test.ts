import { expect, test } from 'vitest'
import { ConnectionLostError } from '../errors.ts'
import { codeOf, findCause, meansTryAgain } from './sqlstate.ts'

const conflict = Object.assign(new Error('could not serialize'), { code: '40001' })

/** An error as an ORM throws it: what the driver said is under one of its names. */
function wrapped(name: string, inner: unknown): Error {
  return Object.assign(new Error('Failed query'), { [name]: inner })
}

test.each(['cause', 'driverError', 'original', 'parent', 'previous'])('finds a conflict under %s', (name) => {
  expect(findCause(wrapped(name, conflict), meansTryAgain)).toBe(conflict)
})

test('finds a conflict that was wrapped several times, under different names', () => {
  const error = wrapped('cause', wrapped('driverError', wrapped('original', conflict)))
  expect(findCause(error, meansTryAgain)).toBe(conflict)
})

test('finds an error of Lockstep in a wrapper', () => {
  const lost = new ConnectionLostError('The connection was lost.', { advice: 'Do it again.' })
  expect(findCause(wrapped('driverError', lost), (each) => each instanceof ConnectionLostError)).toBe(lost)
})

test('takes the nearest error that fits', () => {
  const outer = Object.assign(wrapped('cause', conflict), { code: '40P01' })
  expect(codeOf(findCause(outer, meansTryAgain))).toBe('40P01')
})

test('ends where errors wrap each other', () => {
  const error = new Error('itself')
  error.cause = error
  expect(findCause(error, meansTryAgain)).toBeUndefined()
})

test('does not look into an error that is none of these', () => {
  expect(findCause(wrapped('related', conflict), meansTryAgain)).toBeUndefined()
})
