import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { History } from './history.ts'
import type { QueryResults } from './queries.ts'
import { SAMPLE_MS } from './sampling.ts'

const HOUR_MS = 3_600_000
const asked: string[] = []
let answers: { -readonly [Name in keyof QueryResults]?: QueryResults[Name] } = {}
let watched = false
const made: History[] = []

const ask = Object.fromEntries(
  ['pulse', 'leaseCounts', 'delivery', 'locks', 'leases', 'parked'].map((name) => [
    name,
    async () => {
      asked.push(name)
      const answer = answers[name as keyof QueryResults]
      if (answer === undefined) throw new Error('the database is away')
      return answer
    },
  ]),
) as unknown as ConstructorParameters<typeof History>[0]['ask']

function historyOf(history: boolean, share = 1): History {
  const one = new History({ ask }, { history, share }, () => watched)
  made.push(one)
  return one
}

const lock = (name: string, ...waits: number[]): QueryResults['locks'] =>
  ({ locks: [{ id: 1n, key: name, waiters: waits.map((waitedMs) => ({ waitedMs })) }], tree: [] }) as never

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date', 'performance'] })
  asked.length = 0
  watched = false
  const pulse = { at: '1', commits: '1', rollbacks: '0', position: '1', lock_waiters: '0' }
  answers = {
    pulse: pulse as never,
    leaseCounts: { held: '0', waiting: '0', names: '0' },
    delivery: { status: { dispatchers: [], shards: [], segments: [] }, position: 1, at: 0 },
    locks: lock('Wallet:1', 5),
  }
})
afterEach(() => {
  for (const each of made.splice(0)) each.close()
  vi.useRealTimers()
})

test('asks nothing while no page looks', async () => {
  const history = historyOf(false)
  await vi.advanceTimersByTimeAsync(HOUR_MS)
  watched = true
  history.begin()
  await vi.advanceTimersByTimeAsync(SAMPLE_MS)
  watched = false
  await vi.advanceTimersByTimeAsync(HOUR_MS)
  expect(asked).toEqual([])
  expect(vi.getTimerCount()).toBe(0)
})

test('samples every ten seconds while no page looks, if it was asked to, and keeps one hour', async () => {
  const history = historyOf(true)
  await vi.advanceTimersByTimeAsync(2 * HOUR_MS)
  expect(asked.length).toBe(3 * 720)
  expect(history.samples().length).toBeLessThanOrEqual(361)
  expect(history.samples().length).toBeGreaterThanOrEqual(359)
  watched = true
  await vi.advanceTimersByTimeAsync(HOUR_MS)
  expect(asked.length).toBe(3 * 720)
})

test('continues after an outage of the database, and asks for locks only if a session waits', async () => {
  const history = historyOf(true)
  const { pulse } = answers
  delete answers.pulse
  await vi.advanceTimersByTimeAsync(2 * SAMPLE_MS)
  expect(history.samples()).toEqual([])
  answers.pulse = { ...pulse, lock_waiters: '2' } as never
  await vi.advanceTimersByTimeAsync(SAMPLE_MS)
  expect(history.samples()).toMatchObject([{ lockWaiters: 2, commitsPerSecond: null }])
  expect(history.waits()).toMatchObject([{ key: 'Wallet:1', longestWaitMs: 5, mostWaiters: 1, seen: 1 }])
  expect(asked.filter((name) => name === 'locks')).toHaveLength(1)
})

test('asks for locks also after the clock was set back', async () => {
  answers.pulse = { ...answers.pulse, lock_waiters: '2' } as never
  const history = historyOf(true)
  await vi.advanceTimersByTimeAsync(SAMPLE_MS)
  vi.setSystemTime(Date.now() - HOUR_MS)
  await vi.advanceTimersByTimeAsync(2 * SAMPLE_MS)
  expect(history.waits()).toMatchObject([{ key: 'Wallet:1', seen: 3 }])
})

test('asks less often where answers take long', async () => {
  const slow = {
    ...ask,
    pulse: async () => {
      await new Promise((resolve) => setTimeout(resolve, 1000))
      return ask.pulse()
    },
  }
  const history = new History({ ask: slow }, { history: true, share: 0.01 }, () => false)
  made.push(history)
  await vi.advanceTimersByTimeAsync(HOUR_MS)
  expect(history.samples().length).toBeLessThan(38)
})

test('keeps the longest waits, of 500 keys at most, and forgets them after an hour', () => {
  const history = historyOf(false)
  history.addLocks(lock('Wallet:1', 10, 300))
  history.addLocks(lock('Wallet:1', 20))
  history.addLocks(lock('Wallet:2'))
  expect(history.waits()).toMatchObject([{ key: 'Wallet:1', longestWaitMs: 300, mostWaiters: 2, seen: 2 }])
  for (let n = 0; n < 2000; n++) history.addLocks(lock(`Order:${n}`, n + 1000))
  expect(history.waits()[0]).toMatchObject({ key: 'Order:1999', longestWaitMs: 2999 })
  expect(history.waits()).toHaveLength(50)
  expect(history.waits(Date.now() + HOUR_MS + 1)).toEqual([])
})
