import { getEventListeners } from 'node:events'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { LockAbortedError, LockstepClosedError, LockTimeoutError } from '../errors.ts'
import { GRACE_MS } from '../postgres/index.ts'
import { Closing } from './closing.ts'
import type { Key } from './key.ts'
import { AFTER_END_MS, WaitBudget } from './waitBudget.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

const locks = [{ id: 1n, key: 'Account:1' as Key, shared: false }]

test('ends once for every listener when the time is up', () => {
  const budget = new WaitBudget(1000, undefined, new Closing())
  const heard: string[] = []
  budget.onEnd(() => heard.push('first'))
  budget.onEnd(() => heard.push('second'))
  const forget = budget.onEnd(() => heard.push('forgotten'))
  forget()
  vi.advanceTimersByTime(999)
  expect(heard).toEqual([])
  expect(budget.over).toBe(false)
  vi.advanceTimersByTime(1)
  expect(heard).toEqual(['first', 'second'])
  expect(budget.over).toBe(true)
  expect(budget.aborted).toBe(false)
  expect(vi.getTimerCount()).toBe(0)
  expect(budget.failure('server', locks)).toBeInstanceOf(LockTimeoutError)
  expect(budget.failure('server', locks)).toMatchObject({ keys: ['Account:1'], waitedMs: 1000, waitedFor: 'server' })
})

test('subtracts time that was already waited', () => {
  const budget = new WaitBudget(1000, undefined, new Closing())
  const forget = budget.onEnd(() => undefined)
  vi.advanceTimersByTime(700)
  forget()
  expect(budget.remainingMs()).toBe(300)
  const heard = vi.fn()
  budget.onEnd(heard)
  vi.advanceTimersByTime(299)
  expect(heard).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(heard).toHaveBeenCalledOnce()
})

test('reports an end in the past at once', () => {
  const budget = new WaitBudget(10, undefined, new Closing())
  vi.advanceTimersByTime(10)
  const heard = vi.fn()
  budget.onEnd(heard)()
  expect(heard).toHaveBeenCalledOnce()
})

test('never ends with false', () => {
  const budget = new WaitBudget(false, undefined, new Closing())
  const heard = vi.fn()
  const forget = budget.onEnd(heard)
  expect(vi.getTimerCount()).toBe(0)
  expect(budget.remainingMs()).toBe(Infinity)
  vi.advanceTimersByTime(10 ** 9)
  expect(heard).not.toHaveBeenCalled()
  expect(budget.over).toBe(false)
  forget()
})

test('leaves no time for a lock with 0', () => {
  const budget = new WaitBudget(0, undefined, new Closing())
  expect(budget.triesOnce).toBe(true)
  expect(budget.over).toBe(true)
})

test('leaves all time to a connection and none to a lock with noWait', () => {
  const budget = new WaitBudget(5000, undefined, new Closing(), true)
  expect(budget).toMatchObject({ triesOnce: true, over: true, aborted: false })
  expect(budget.remainingMs()).toBe(0)
  const heard = vi.fn()
  budget.onEnd(heard)
  vi.advanceTimersByTime(4999)
  expect(heard).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(heard).toHaveBeenCalledOnce()
  const endless = new WaitBudget(false, undefined, new Closing(), true)
  endless.onEnd(heard)
  expect(vi.getTimerCount()).toBe(0)
})

test('ends by the caller’s signal, with its reason', () => {
  const controller = new AbortController()
  const budget = new WaitBudget(1000, controller.signal, new Closing())
  const [ended, aborted] = [vi.fn(), vi.fn()]
  budget.onEnd(ended)
  budget.onAbort(aborted)
  const reason = new Error('changed my mind')
  controller.abort(reason)
  expect(ended).toHaveBeenCalledOnce()
  expect(aborted).toHaveBeenCalledOnce()
  expect(budget).toMatchObject({ over: true, aborted: true })
  expect(budget.failure('process', locks)).toBeInstanceOf(LockAbortedError)
  expect(budget.failure('process', locks)).toMatchObject({ cause: reason, keys: ['Account:1'] })
  expect(vi.getTimerCount()).toBe(0)
})

test('ends at once by a signal that was aborted before', () => {
  const budget = new WaitBudget(1000, AbortSignal.abort(), new Closing())
  const heard = vi.fn()
  budget.onEnd(heard)
  expect(heard).toHaveBeenCalledOnce()
  expect(budget.over).toBe(true)
})

test('ends by close()', () => {
  const closing = new Closing()
  const budget = new WaitBudget(1000, undefined, closing)
  const heard = vi.fn()
  budget.onEnd(heard)
  closing.close()
  expect(heard).toHaveBeenCalledOnce()
  expect(budget.failure('process', locks)).toBeInstanceOf(LockstepClosedError)
  expect(vi.getTimerCount()).toBe(0)
})

test('reports an abort once, by signal or close(), without a timer', () => {
  const controller = new AbortController()
  const closing = new Closing()
  const budget = new WaitBudget(1000, controller.signal, closing)
  const [heard, forgotten] = [vi.fn(), vi.fn()]
  budget.onAbort(heard)
  budget.onAbort(forgotten)()
  expect(vi.getTimerCount()).toBe(0)
  closing.close()
  controller.abort()
  expect(heard).toHaveBeenCalledOnce()
  expect(forgotten).not.toHaveBeenCalled()
  expect(getEventListeners(controller.signal, 'abort')).toEqual([])
})

test('is not aborted by its end in time', () => {
  const budget = new WaitBudget(10, undefined, new Closing())
  const heard = vi.fn()
  budget.onAbort(heard)
  vi.advanceTimersByTime(10)
  expect(heard).not.toHaveBeenCalled()
})

test('leaves no listeners on a long-lived signal', () => {
  const controller = new AbortController()
  const closing = new Closing()
  for (let round = 0; round < 10_000; round++) {
    const budget = new WaitBudget(1000, controller.signal, closing)
    const forget = budget.onEnd(() => undefined)
    if (round % 2 === 0) budget.onEnd(() => undefined)()
    forget()
  }
  expect(getEventListeners(controller.signal, 'abort')).toEqual([])
  expect(vi.getTimerCount()).toBe(0)
})

test.each(['process', 'connection', 'server'] as const)('names what it waited for: %s', (stage) => {
  const budget = new WaitBudget(5, undefined, new Closing())
  const holder = { where: 'server' as const, key: 'Account:1', pid: 42, application: 'other', openForMs: 7 }
  const failure = budget.failure(stage, locks, [holder]) as LockTimeoutError
  expect(failure).toMatchObject({ code: 'LOCKSTEP_LOCK_TIMEOUT', waitedFor: stage, holders: [holder] })
  if (stage === 'server') expect(failure.message).toContain('backend 42 (other) holds Account:1')
})

test('waits for an answer a moment longer than its time', () => {
  const budget = new WaitBudget(400, undefined, new Closing())
  expect(budget.answerMs()).toBe(400 + GRACE_MS)
  expect(budget.answerMs(300)).toBe(400 + GRACE_MS)
  vi.advanceTimersByTime(390)
  expect(budget.answerMs()).toBe(10 + GRACE_MS)
  vi.advanceTimersByTime(10)
  expect(budget.answerMs()).toBe(AFTER_END_MS)
})

test('gives a silent connection only part of the time', () => {
  const budget = new WaitBudget(30_000, undefined, new Closing())
  expect(budget.answerMs()).toBe(7500)
  expect(budget.answerMs(2000)).toBe(2000 + 7000)
  expect(budget.mayHurry).toBe(false)
  vi.advanceTimersByTime(28_900)
  expect(budget.answerMs()).toBe(500)
  vi.advanceTimersByTime(200)
  expect(budget.answerMs()).toBe(900 + GRACE_MS)
  expect(budget.mayHurry).toBe(true)
})

test('waits for an answer until silenceMs without a limit, and a second with 0', () => {
  expect(new WaitBudget(false, undefined, new Closing()).answerMs(5)).toBe(Infinity)
  const once = new WaitBudget(0, undefined, new Closing())
  expect(once.leftMs).toBe(1000)
  vi.advanceTimersByTime(1)
  expect(once.answerMs()).toBe(999 + GRACE_MS)
})

test('waits only a moment for an answer after an abort', () => {
  const controller = new AbortController()
  const budget = new WaitBudget(30_000, controller.signal, new Closing())
  const heard = vi.fn()
  expect(new WaitBudget(1000, undefined, new Closing()).onSignal(heard)).toBeUndefined()
  budget.onSignal(heard)
  controller.abort()
  expect(heard).toHaveBeenCalledOnce()
  expect(budget.answerMs()).toBe(AFTER_END_MS)
})
