import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { LockSet } from './lockSet.ts'
import { RecentContention } from './recentContention.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
afterEach(() => void vi.useRealTimers())

const locks = (...ids: number[]): LockSet =>
  ids.map((id) => ({ id: BigInt(id), key: `Account:${id}` as const, shared: false }))

test('expects contention for a while on a key that was taken', () => {
  const recent = new RecentContention()
  expect(recent.expects(locks(1))).toBe(false)
  recent.note(locks(1))
  expect(recent.expects(locks(2, 1))).toBe(true)
  expect(recent.expects(locks(2))).toBe(false)
  vi.advanceTimersByTime(251)
  expect(recent.expects(locks(1))).toBe(false)
})

test('expects no contention on a key that was free', () => {
  const recent = new RecentContention()
  recent.note(locks(1, 2))
  recent.forget(locks(1))
  expect([recent.expects(locks(1)), recent.expects(locks(2))]).toEqual([false, true])
})

test('stays small', () => {
  const recent = new RecentContention()
  for (let id = 0; id < 1001; id++) recent.note(locks(id))
  expect(recent.expects(locks(0))).toBe(false)
  expect(recent.expects(locks(1000))).toBe(true)
})
