import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { Places } from './places.ts'

test('callers that wait with one signal share its listener, and all give up when it is aborted', async () => {
  const warnings: Error[] = []
  const note = (warning: Error): number => warnings.push(warning)
  process.on('warning', note)
  try {
    const places = new Places(20, 1)
    const late = new AbortController()
    await places.take('tenant')
    const waiting = Array.from({ length: 12 }, () => places.take('tenant', late.signal))
    await setImmediate()
    expect(warnings).toEqual([])
    late.abort()
    expect(await Promise.all(waiting)).toEqual(waiting.map(() => undefined))
  } finally {
    process.off('warning', note)
  }
})

test('a caller that got its place does not give it up when the signal is aborted', async () => {
  const places = new Places(1)
  const late = new AbortController()
  const release = await places.take('tenant')
  const waiting = places.take('tenant', late.signal)
  release?.()
  late.abort()
  expect(await waiting).toBeTypeOf('function')
  expect(places.inUse).toBe(1)
})
