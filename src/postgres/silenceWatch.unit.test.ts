import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Connection } from './connection.ts'
import { GRACE_MS, SilenceWatch } from './silenceWatch.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'performance'] }))
afterEach(() => void vi.useRealTimers())

function connection(): Connection & { readonly destroy: ReturnType<typeof vi.fn> } {
  return { destroy: vi.fn() } as never
}

describe('a watch', () => {
  test('destroys a connection at the end of silenceMs, and not before', () => {
    const [watch, silent] = [new SilenceWatch(30_000), connection()]
    const pending = watch.start(silent, 2000)
    vi.advanceTimersByTime(31_998)
    expect(silent.destroy).not.toHaveBeenCalled()
    vi.advanceTimersByTime(4)
    expect(silent.destroy).toHaveBeenCalledOnce()
    expect(pending.outOfTime).toBe(false)
    vi.advanceTimersByTime(1000)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('keeps a connection that has answered', () => {
    const [watch, answering] = [new SilenceWatch(100), connection()]
    watch.stop(watch.start(answering))
    vi.advanceTimersByTime(1000)
    expect(answering.destroy).not.toHaveBeenCalled()
    expect(vi.getTimerCount()).toBe(0)
  })

  test('destroys it at the end of its waiter’s time, also beside others', () => {
    const [watch, patient, hasty] = [new SilenceWatch(30_000), connection(), connection()]
    watch.start(patient)
    vi.advanceTimersByTime(10)
    const pending = watch.start(hasty, 0, undefined, 60)
    vi.advanceTimersByTime(59)
    expect(hasty.destroy).not.toHaveBeenCalled()
    vi.advanceTimersByTime(3)
    expect(hasty.destroy).toHaveBeenCalledOnce()
    expect(pending.outOfTime).toBe(true)
    expect(patient.destroy).not.toHaveBeenCalled()
  })

  test('can be shortened', () => {
    const [watch, silent] = [new SilenceWatch(30_000), connection()]
    const pending = watch.start(silent)
    vi.advanceTimersByTime(5)
    watch.hurry(pending, 20)
    watch.hurry(pending, 5000)
    vi.advanceTimersByTime(23)
    expect(silent.destroy).toHaveBeenCalledOnce()
    expect(pending.outOfTime).toBe(true)
  })

  test('notices that its waiter is gone', () => {
    const [watch, silent, waiter] = [new SilenceWatch(30_000), connection(), { aborted: false }]
    watch.start(silent, 0, undefined, Infinity, waiter)
    vi.advanceTimersByTime(1000)
    waiter.aborted = true
    vi.advanceTimersByTime(250 + GRACE_MS + 4)
    expect(silent.destroy).toHaveBeenCalledOnce()
  })

  test('calls onSilence instead, once, and again after goOn()', () => {
    const [watch, silent, heard] = [new SilenceWatch(100), connection(), vi.fn()]
    const pending = watch.start(silent, 0, heard)
    vi.advanceTimersByTime(1000)
    expect(heard).toHaveBeenCalledOnce()
    expect(watch.goOn(pending)).toBe(true)
    vi.advanceTimersByTime(98)
    expect(heard).toHaveBeenCalledOnce()
    vi.advanceTimersByTime(4)
    expect(heard).toHaveBeenCalledTimes(2)
    watch.stop(pending)
    expect(watch.goOn(pending)).toBe(false)
    expect(silent.destroy).not.toHaveBeenCalled()
  })

  test('reads an answer that has arrived before it gives up a connection', () => {
    const [watch, slow] = [new SilenceWatch(100), connection()]
    const pending = watch.start(slow)
    // The event loop was held up: the deadline is seen before the answer in the same turn.
    setTimeout(() => setImmediate(() => watch.stop(pending)), 99)
    vi.advanceTimersByTime(99)
    vi.advanceTimersByTime(200)
    expect(slow.destroy).not.toHaveBeenCalled()
  })
})
