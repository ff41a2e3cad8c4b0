import { expect, test } from 'vitest'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError } from '../errors.ts'
import { planRetry, retryPauseMs } from './retryOptions.ts'

const defaults = planRetry(undefined)

test('takes what is not given from the Lockstep', () => {
  const ofLockstep = planRetry({ attempts: 3, connectionPauseMs: { first: 10, longest: 50 } })
  expect(ofLockstep).toEqual({
    attempts: 3,
    pauses: { conflict: defaults.pauses.conflict, connection: { first: 10, longest: 50 } },
  })
  expect(planRetry({ attempts: 5 }, ofLockstep)).toEqual({ ...ofLockstep, attempts: 5 })
  expect(planRetry({ connectionPauseMs: { longest: 5 } }, ofLockstep).pauses.connection).toEqual({
    first: 5,
    longest: 5,
  })
  expect(planRetry({ conflictPauseMs: { first: 900 } }, ofLockstep).pauses.conflict).toEqual({
    first: 900,
    longest: 900,
  })
})

test.each([
  [{ conflictPauseMs: { first: 0 } }, 'conflictPauseMs.first is 0'],
  [{ connectionPauseMs: { longest: Number.NaN } }, 'connectionPauseMs.longest is NaN'],
  [{ connectionPauseMs: { longest: 2 ** 31 } }, 'connectionPauseMs.longest is 2147483648'],
  [{ connectionPauseMs: { first: 20, longest: 10 } }, 'longer than 10'],
  [{ conflictPauseMs: 5 }, 'conflictPauseMs'],
])('refuses %o', async (retry, text) => {
  const error = await failureOf((async () => planRetry(retry as never))())
  expect(error).toBeInstanceOf(InvalidOptionError)
  expect((error as Error).message).toContain(text)
})

test('doubles the pause up to the longest', () => {
  const most = (attempt: number): number =>
    Math.max(...Array.from({ length: 2000 }, () => retryPauseMs({ first: 4, longest: 250 }, attempt)))
  for (const [attempt, bound] of [
    [1, 4],
    [2, 8],
    [3, 16],
    [7, 250],
    [900, 250],
  ] as const) {
    expect(most(attempt)).toBeLessThanOrEqual(bound)
    expect(most(attempt)).toBeGreaterThan(bound / 2)
  }
})
