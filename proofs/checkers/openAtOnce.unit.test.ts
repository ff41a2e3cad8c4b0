import { expect, test } from 'vitest'
import { openAtOnce } from './openAtOnce.ts'

/** A pool of so many places, whose callers wait for one. */
function pool(places: number): (held: () => Promise<void>) => Promise<void> {
  const waiting: (() => void)[] = []
  let free = places
  return async (held) => {
    if (free > 0) free--
    else await new Promise<void>((resolve) => waiting.push(resolve))
    try {
      await held()
    } finally {
      const next = waiting.shift()
      if (next === undefined) free++
      else next()
    }
  }
}

test('accepts as many as there are', async () => {
  expect(await openAtOnce(4, 1000, pool(4))).toBe(4)
})

test('reports a missing one, though its place is filled later', async () => {
  expect(await openAtOnce(4, 50, pool(3))).toBe(3)
})

test('does not count what cannot be opened, and reports it', async () => {
  await expect(openAtOnce(2, 50, () => Promise.reject(new Error('refused')))).rejects.toThrow('refused')
})
