import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { ConnectionLostError, ConnectionRejectedError, LockTimeoutError } from '../errors.ts'
import { withGrowingTimeout } from './growingTimeout.ts'
import { SilenceWatch } from './silenceWatch.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

const lost = (): ConnectionLostError => new ConnectionLostError('It was silent.', { advice: 'Ask again.' })
const exhausted = (): LockTimeoutError =>
  new LockTimeoutError('None is free.', { advice: 'Ask again.', waitedMs: 1, waitedFor: 'connection', holders: [] })

/** Asks, with a server that answers each question in this way; gives how much time the questions had. */
async function ask(answers: readonly (Error | string)[], silent = true): Promise<{ asked: number[]; value: unknown }> {
  const asked: number[] = []
  const value = await withGrowingTimeout(new SilenceWatch(30_000), async ({ silenceMs }) => {
    asked.push(silenceMs)
    const answer = answers[asked.length - 1]
    if (!(answer instanceof Error)) return answer
    if (silent) vi.advanceTimersByTime(silenceMs)
    throw answer
  }).catch((error: unknown) => error)
  return { asked, value }
}

test('returns the first answer', async () => {
  expect(await ask(['ready'])).toEqual({ asked: [2000], value: 'ready' })
})

test('asks again with more time after silence or without a connection', async () => {
  expect(await ask([lost(), exhausted(), 'ready'])).toEqual({ asked: [2000, 6000, 18_000], value: 'ready' })
})

test('asks the last time with all remaining time', async () => {
  const last = lost()
  expect(await ask([lost(), lost(), lost(), last])).toEqual({ asked: [2000, 6000, 18_000, 30_000], value: last })
})

test('does not ask again after an early failure or another error', async () => {
  const refused = lost()
  expect(await ask([refused], false)).toEqual({ asked: [2000], value: refused })
  const rejected = new ConnectionRejectedError('No.', { advice: 'Change it.', reason: 'authentication' })
  expect(await ask([rejected])).toEqual({ asked: [2000], value: rejected })
})

test('asks once if silenceMs is shorter', async () => {
  const asked: number[] = []
  await withGrowingTimeout(new SilenceWatch(300), async ({ silenceMs }) => asked.push(silenceMs))
  expect(asked).toEqual([300])
})
