import { expect, test } from 'vitest'
import { LockTimeoutError, QueueFullError } from '../errors.ts'
import { unavailable } from './unavailable.ts'

test('answers 503 with Retry-After for a full queue, but not for a held lock', () => {
  const answer = unavailable(
    new QueueFullError('10000 calls wait already.', { advice: 'Come back later.', waiting: 10_000 }),
  )
  expect(answer?.status).toBe(503)
  expect(answer?.headers).toContainEqual(['retry-after', '1'])
  const held = { advice: 'Wait.', waitedMs: 5, waitedFor: 'server' as const, holders: [] }
  expect(unavailable(new LockTimeoutError('The lock was not granted.', held))).toBeUndefined()
})
