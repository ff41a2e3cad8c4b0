import { expect, test } from 'vitest'
import { ConnectionLostError } from '../errors.ts'
import { codeOf, findCause, isSqlState, meansConnectionLost, meansTryAgain } from './sqlstate.ts'

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

/** An error as Prisma throws it: its adapter has turned the driver's into a description. */
function ofPrisma(code: string, cause: object): Error {
  const adapterError = Object.assign(new Error('postgres', { cause }), { name: 'DriverAdapterError' })
  return Object.assign(new Error('Invalid invocation'), {
    code,
    meta: { modelName: 'Note', driverAdapterError: adapterError },
  })
}

test.each([
  ['P2034', { kind: 'TransactionWriteConflict', originalCode: '40001' }, '40001'],
  ['P2034', { kind: 'TransactionWriteConflict', originalCode: '40P01' }, '40P01'],
  ['P2010', { kind: 'TransactionWriteConflict', originalCode: '40001' }, '40001'],
  ['P2010', { kind: 'postgres', code: '40001' }, '40001'],
])('finds a conflict under %s of Prisma: %j', (code, cause, state) => {
  expect(codeOf(findCause(ofPrisma(code, cause), meansTryAgain))).toBe(state)
})

test.each([{ kind: 'ConnectionClosed' }, { kind: 'SocketTimeout' }, { kind: 'postgres', code: '57P01' }])(
  'finds a lost connection under P2010 of Prisma: %j',
  (cause) => {
    expect(findCause(ofPrisma('P2010', cause), meansConnectionLost)).toBe(cause)
  },
)

test('does not take a code of Prisma for the SQLSTATE that it stands for', () => {
  const error = ofPrisma('P2002', { kind: 'UniqueConstraintViolation', originalCode: '23505' })
  expect(isSqlState(error)).toBe(false)
  expect(codeOf(findCause(error, isSqlState))).toBe('23505')
  expect(isSqlState({ code: 'P0001' })).toBe(true)
})

test('does not take a unique violation for a conflict', () => {
  const error = ofPrisma('P2002', { kind: 'UniqueConstraintViolation', originalCode: '23505' })
  expect(findCause(error, meansTryAgain)).toBeUndefined()
  expect(findCause(error, meansConnectionLost)).toBeUndefined()
})
