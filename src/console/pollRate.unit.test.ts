import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { intervalsOf, Ping, PollRate } from './pollRate.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
afterEach(() => void vi.useRealTimers())

/** A question whose answers have taken so long. */
function asked(everyMs: number, ...times: readonly number[]): PollRate {
  const rate = new PollRate(everyMs)
  for (const tookMs of times) {
    rate.started()
    vi.advanceTimersByTime(tookMs)
    rate.answered(0)
  }
  return rate
}

const shareOf = (rate: PollRate, intervals: ReadonlyMap<PollRate, number>): number =>
  rate.tookMs / (intervals.get(rate) ?? 0)

test('asks cheap queries at their interval', () => {
  const rates = [asked(1000, 2, 2), asked(2000, 4, 4), asked(1000)]
  expect([...intervalsOf(rates, 0.01).values()].toSorted((a, b) => a - b)).toEqual([1000, 1000, 2000])
})

test('asks expensive queries less often, without slowing down cheap ones', () => {
  const [cheap, expensive, mostExpensive] = [asked(1000, 1, 1), asked(1000, 100, 100), asked(2000, 1000, 1000)]
  const intervals = intervalsOf([mostExpensive, cheap, expensive], 0.01)
  expect(intervals.get(cheap)).toBe(1000)
  // Each has half a per cent.
  expect(intervals.get(expensive)).toBeCloseTo(20_000, 0)
  expect(intervals.get(mostExpensive)).toBeCloseTo(200_000, 0)
  // Where only one is expensive it has what the others leave: 1 % less the cheap one's 0.1 %.
  expect(shareOf(expensive, intervalsOf([cheap, expensive], 0.01))).toBeCloseTo(0.009, 5)
})

test('asks as often as possible without a limit', () => {
  const [expensive, mostExpensive] = [asked(1000, 400, 400), asked(1000, 4000, 4000)]
  const intervals = intervalsOf([expensive, mostExpensive], 1)
  expect([intervals.get(expensive), intervals.get(mostExpensive)]).toEqual([1000, expect.closeTo(4000 / 0.6, 0)])
})

test('ignores one late answer, and never stops asking', () => {
  expect(asked(1000, 5000).tookMs).toBe(0)
  expect(asked(1000, 5000, 3).tookMs).toBe(3)
  expect(asked(1000, 5000, 3, 4).tookMs).toBe(4)
  expect(asked(1000, 1, 50, 60, 70, 80).tookMs).toBe(60)
  const endless = asked(1000, 30_000, 30_000)
  expect(intervalsOf([endless], 0.01).get(endless)).toBe(300_000)
})

test('retries failures with pauses up to 5 s', () => {
  const rate = new PollRate(1000)
  const pauses = Array.from({ length: 5 }, () => {
    rate.started()
    vi.advanceTimersByTime(10)
    rate.failed()
    return rate.dueAt(1000) - performance.now()
  })
  expect(pauses).toEqual([1000, 2000, 4000, 5000, 5000])
  rate.hurry()
  expect(rate.dueAt(1000)).toBe(-Infinity)
})

test('does not count the cost of any query against one', async () => {
  const ping = new Ping()
  let asks = 0
  const measure = (): Promise<void> =>
    ping.measure(async () => {
      // The first makes a connection.
      vi.advanceTimersByTime(asks++ === 0 ? 200 : 40)
    })
  await measure()
  await measure()
  expect([asks, ping.tookMs]).toEqual([2, 40])
  vi.advanceTimersByTime(5000)
  await measure()
  expect([asks, ping.tookMs]).toEqual([3, 40])
  const rate = new PollRate(1000)
  for (const tookMs of [45, 30, 47]) {
    rate.started()
    vi.advanceTimersByTime(tookMs)
    rate.answered(ping.tookMs)
  }
  // A quarter of it counts all the same.
  expect(rate.tookMs).toBe(45 / 4)
  for (const tookMs of [140, 150, 160, 170]) {
    rate.started()
    vi.advanceTimersByTime(tookMs)
    rate.answered(ping.tookMs)
  }
  expect(rate.tookMs).toBe(110)
})
