import { expect, test } from 'vitest'
import { stopInFlight } from './inFlight.ts'

/** A process that writes down what is done to it. */
function victim() {
  const done: string[] = []
  return { done, stop: () => void done.push('stop'), continue: () => void done.push('continue') }
}
const soon = { pauseMs: () => 0, goesOn: () => true }

test('stops a process again and again until something is in flight, and leaves it stopped', async () => {
  const struck = victim()
  const looks = [undefined, undefined, 'a batch']
  expect(await stopInFlight(struck, async () => looks.shift(), soon)).toBe('a batch')
  expect(struck.done).toEqual(['stop', 'continue', 'stop', 'continue', 'stop'])
})

test('lets a process continue where the search is ended', async () => {
  const struck = victim()
  let looks = 0
  const goesOn = (): boolean => looks < 2
  expect(await stopInFlight(struck, async () => void looks++, { ...soon, goesOn })).toBeUndefined()
  expect(struck.done).toEqual(['stop', 'continue', 'stop', 'continue'])
})

test('lets a process continue where its sessions cannot be read', async () => {
  const struck = victim()
  await expect(stopInFlight(struck, () => Promise.reject(new Error('away')), soon)).rejects.toThrow('away')
  expect(struck.done).toEqual(['stop', 'continue'])
})
