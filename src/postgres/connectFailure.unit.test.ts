import { describe, expect, test } from 'vitest'
import { ConnectionLostError, ConnectionRejectedError, LockTimeoutError, PoolClosedError } from '../errors.ts'
import { connectFailure, meansNoConnection, poolExhausted, withKeys } from './connectFailure.ts'

function coded(code: string): Error {
  return Object.assign(new Error(`it said ${code}.`), { code })
}

describe('the error of a connect', () => {
  test.each([
    'ECONNREFUSED',
    'ECONNRESET',
    'ENOTFOUND',
    'EAI_AGAIN',
    'ETIMEDOUT',
    'EHOSTUNREACH',
    'ENOENT',
    'EMFILE',
    'CONNECT_TIMEOUT',
    'CONNECTION_CLOSED',
    'CONNECTION_DESTROYED',
    // PgBouncer has this one for whatever is wrong with its server.
    '08P01',
    '08006',
    '53300',
    '57P01',
    '57P03',
    'XX000',
    // No known code.
    'EWHATEVER',
  ])('%s is ConnectionLostError', (code) => {
    const cause = coded(code)
    const failure = connectFailure(cause)
    expect(failure).toBeInstanceOf(ConnectionLostError)
    expect(failure).toMatchObject({ cause, keys: [] })
    expect(failure.message).toBe(`No connection could be opened: it said ${code}. ${failure.advice}`)
    expect(meansNoConnection(failure)).toBe(true)
  })

  test.each([
    ['28P01', 'authentication'],
    ['28000', 'authentication'],
    ['SASL_SIGNATURE_MISMATCH', 'authentication'],
    ['3D000', 'database'],
    ['42501', 'database'],
    ['55000', 'database'],
    ['57P04', 'database'],
    ['42704', 'settings'],
    ['22023', 'settings'],
    ['0A000', 'settings'],
    ['CERT_HAS_EXPIRED', 'tls'],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', 'tls'],
    ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'tls'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', 'tls'],
    ['ERR_SSL_WRONG_VERSION_NUMBER', 'tls'],
    ['EPROTO', 'tls'],
  ])('%s is ConnectionRejectedError: %s', (code, reason) => {
    const failure = connectFailure(coded(code))
    expect(failure).toBeInstanceOf(ConnectionRejectedError)
    expect(failure).toMatchObject({ code: 'LOCKSTEP_CONNECTION_REJECTED', reason, cause: { code } })
    expect(meansNoConnection(failure)).toBe(false)
  })

  test('without a code is ConnectionLostError, whatever its text says', () => {
    const failure = connectFailure(new Error('password authentication failed'))
    expect(failure).toBeInstanceOf(ConnectionLostError)
  })

  test('of several addresses names all of them', () => {
    const cause = Object.assign(new AggregateError([new Error('not at ::1'), new Error('not at 127.0.0.1')], ''), {
      code: 'ECONNREFUSED',
    })
    expect(connectFailure(cause).message).toContain('not at ::1; not at 127.0.0.1')
  })

  test('that is ours already is left as it is', () => {
    const closed = new PoolClosedError('The pool was ended.', { advice: 'Make another.' })
    expect(connectFailure(closed)).toBe(closed)
  })
})

describe('withKeys', () => {
  test.each([connectFailure(coded('ECONNREFUSED')), connectFailure(coded('28P01'))])(
    'names the keys: %s',
    (failure) => {
      const named = withKeys(failure, ['Order:1']) as ConnectionRejectedError
      expect(named.constructor).toBe(failure.constructor)
      const { message, advice, cause } = failure
      expect(named).toMatchObject({ message, advice, cause, keys: ['Order:1'] })
      expect(named.reason).toBe((failure as ConnectionRejectedError).reason)
    },
  )

  test('leaves every other error alone, and a call without keys', () => {
    const [other, failure] = [new Error('mine'), connectFailure(coded('ECONNREFUSED'))]
    expect(withKeys(other, ['Order:1'])).toBe(other)
    expect(withKeys(failure, [])).toBe(failure)
  })
})

test('an exhausted pool is LockTimeoutError for a connection', () => {
  const failure = poolExhausted(49.6)
  expect(failure).toBeInstanceOf(LockTimeoutError)
  expect(failure).toMatchObject({ waitedFor: 'connection', waitedMs: 50, holders: [], keys: [] })
  expect(meansNoConnection(failure)).toBe(true)
})
