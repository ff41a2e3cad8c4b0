import {
  CommitOutcomeUnknownError,
  InvalidKeyError,
  InvalidOptionError,
  LeaseHeldError,
  LockTimeoutError,
  QueueFullError,
} from 'pg-lockstep'
import { describe, expect, test } from 'vitest'
import { problemOf } from './errors.ts'

const advice = 'Do something else.'

function timeout(waitedFor: 'server' | 'connection'): LockTimeoutError {
  return new LockTimeoutError('It took too long.', { advice, waitedMs: 5, waitedFor, holders: [] })
}

function held(leftMs: number): LeaseHeldError {
  const details = { advice, holder: 'another request', since: new Date(), leftMs, waitedMs: 0 }
  return new LeaseHeldError('Another request has it.', details)
}

describe('the answer to an error', () => {
  test.each([
    ['a lock that was not granted', timeout('server'), 409, 'busy', 1],
    ['no connection', timeout('connection'), 503, 'unavailable', 1],
    ['a lease that another caller holds', held(2_100), 409, 'busy', 3],
    ['a full queue', new QueueFullError('Full.', { advice, waiting: 9 }), 503, 'unavailable', 1],
    ['an unknown outcome of COMMIT', new CommitOutcomeUnknownError('Lost.', { advice }), 503, 'outcome-unknown', 1],
    ['an invalid id', new InvalidKeyError('No.', { advice }), 400, 'invalid-id', undefined],
    ['a terminated session', Object.assign(new Error('ended'), { code: '57P01' }), 503, 'unavailable', 1],
    ['an unreachable server', Object.assign(new Error('no'), { code: 'ECONNREFUSED' }), 503, 'unavailable', 1],
    ['a lost connection', new Error('Connection terminated unexpectedly'), 503, 'unavailable', 1],
  ])('%s', (_, error, status, code, retryAfterSeconds) => {
    const problem = problemOf(error)
    expect([problem?.status, problem?.code, problem?.extras.retryAfterSeconds]).toEqual([
      status,
      code,
      retryAfterSeconds,
    ])
  })

  test.each([
    ['a mistake of ours', new TypeError('undefined is not a function')],
    ['an option that makes no sense', new InvalidOptionError('No.', { advice })],
    ['SQL that is wrong', Object.assign(new Error('syntax error'), { code: '42601' })],
    ['an unknown constraint', Object.assign(new Error('duplicate key'), { code: '23505' })],
  ])('hides the details of %s', (_, error) => {
    expect(problemOf(error)).toBeUndefined()
  })
})
