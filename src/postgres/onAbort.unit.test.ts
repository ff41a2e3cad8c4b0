import { getEventListeners } from 'node:events'
import { expect, test, vi } from 'vitest'
import { onAbort } from './onAbort.ts'

function listenersOf(signal: AbortSignal): number {
  return getEventListeners(signal, 'abort').length
}

test('adds one listener to a signal, however many callers wait for it', () => {
  const { signal } = new AbortController()
  for (let number = 0; number < 1000; number++) onAbort(signal, () => undefined)
  expect(listenersOf(signal)).toBe(1)
})

test('calls every listener once, in order of arrival', () => {
  const controller = new AbortController()
  const heard: number[] = []
  for (let number = 0; number < 5; number++) onAbort(controller.signal, () => heard.push(number))
  controller.abort()
  controller.abort()
  expect(heard).toEqual([0, 1, 2, 3, 4])
  expect(listenersOf(controller.signal)).toBe(0)
})

test('calls at once if the signal was aborted before', () => {
  const heard = vi.fn()
  onAbort(AbortSignal.abort(), heard)()
  expect(heard).toHaveBeenCalledOnce()
})

test('does not call a listener that was removed', () => {
  const controller = new AbortController()
  const [kept, forgotten] = [vi.fn(), vi.fn()]
  onAbort(controller.signal, kept)
  const forget = onAbort(controller.signal, forgotten)
  forget()
  forget()
  controller.abort()
  expect(kept).toHaveBeenCalledOnce()
  expect(forgotten).not.toHaveBeenCalled()
})

test('accepts the same function twice', () => {
  const controller = new AbortController()
  const heard = vi.fn()
  onAbort(controller.signal, heard)
  onAbort(controller.signal, heard)()
  controller.abort()
  expect(heard).toHaveBeenCalledOnce()
})

test('removes the listener with the last caller, and adds it again for the next', () => {
  const controller = new AbortController()
  const { signal } = controller
  const [first, second] = [onAbort(signal, () => undefined), onAbort(signal, () => undefined)]
  first()
  expect(listenersOf(signal)).toBe(1)
  second()
  expect(listenersOf(signal)).toBe(0)
  const heard = vi.fn()
  onAbort(signal, heard)
  // Taken back before, and of no consequence for who came later.
  second()
  expect(listenersOf(signal)).toBe(1)
  controller.abort()
  expect(heard).toHaveBeenCalledOnce()
})

test('lets a listener remove others while it is called', () => {
  const controller = new AbortController()
  const late = vi.fn()
  const heard: string[] = []
  onAbort(controller.signal, () => {
    heard.push('first')
    onAbort(controller.signal, late)
  })
  onAbort(controller.signal, () => heard.push('second'))
  controller.abort()
  expect(heard).toEqual(['first', 'second'])
  expect(late).toHaveBeenCalledOnce()
})

test('leaves nothing on a long-lived signal', () => {
  const { signal } = new AbortController()
  let most = 0
  for (let number = 0; number < 200_000; number++) {
    const forget = onAbort(signal, () => undefined)
    if (number % 20_000 === 0) most = Math.max(most, listenersOf(signal))
    forget()
  }
  expect(most).toBe(1)
  expect(listenersOf(signal)).toBe(0)
})
