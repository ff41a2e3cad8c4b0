import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Closing } from '../locks/index.ts'
import type { PartSetup } from '../transactions/index.ts'
import { Ringer } from './ringer.ts'

const RING_MS = 2

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A process whose rings take so long each, and the topics and groups for which it rang. */
function process(ringMs = RING_MS): { ringer: Ringer; closing: Closing; rung: string[]; groups: string[] } {
  const rung: string[] = []
  const groups: string[] = []
  const connection = {
    async script(text: string) {
      rung.push(/ t:([\w,]+)/.exec(text)?.[1] ?? '')
      groups.push(/[0-9a-f]{16}/.exec(text)?.[0] ?? '')
      await new Promise((resolve) => setTimeout(resolve, ringMs))
      return [{ command: 'SELECT', rowCount: 1, rows: [{ rung: 'true' }] }]
    },
    release() {},
  }
  const closing = new Closing()
  const driver = { connect: () => Promise.resolve(connection) }
  const silence = { silenceMs: 1000, start: () => undefined, stop: () => undefined }
  const setup = { driver, silence, closing, schema: 'lockstep', quotedSchema: 'lockstep' }
  return { ringer: new Ringer(setup as unknown as PartSetup), closing, rung, groups }
}

test('pauses between rings while commits go on, and rings at once after a silence', async () => {
  const { ringer, rung } = process()
  for (let ms = 0; ms < 1000; ms += 2) {
    ringer.ring([{ topic: 'busy', key: 'k' }])
    await vi.advanceTimersByTimeAsync(2)
  }
  // 2 ms each, and 6 ms between two of them.
  expect(rung.length).toBeGreaterThan(100)
  expect(rung.length).toBeLessThanOrEqual(126)
  await vi.advanceTimersByTimeAsync(100)
  const before = rung.length
  ringer.ring([{ topic: 'late', key: 'k' }])
  await vi.advanceTimersByTimeAsync(0)
  expect(rung.slice(before)).toEqual(['late'])
})

test('pauses longer while a ring stands for many events', async () => {
  const { ringer, rung } = process()
  for (let ms = 0; ms < 1000; ms++) {
    for (let n = 0; n < 5; n++) ringer.ring([{ topic: 'busy', key: String(n) }])
    await vi.advanceTimersByTimeAsync(1)
  }
  // 2 ms each, and 40 ms between two of them.
  expect(rung.length).toBeGreaterThan(15)
  expect(rung.length).toBeLessThanOrEqual(27)
})

test.each([
  { other: 'topic', sparse: { topic: 'orders', key: 'k' } },
  { other: 'stream', sparse: { topic: 'audit', key: 'sparse' } },
])('rings soon for another $other beside one that has many events', async ({ sparse }) => {
  const { ringer, rung, groups } = process()
  ringer.ring([sparse])
  await vi.advanceTimersByTimeAsync(100)
  const theirs = groups[0] ?? ''
  const waitsMs: number[] = []
  let [enqueuedAt, seen] = [0, rung.length]
  for (let ms = 0; ms < 1000; ms++) {
    for (let n = 0; n < 5; n++) ringer.ring([{ topic: 'audit', key: 'hot' }])
    if (ms % 40 === 20) {
      ringer.ring([sparse])
      enqueuedAt = performance.now()
    }
    await vi.advanceTimersByTimeAsync(1)
    for (; seen < rung.length; seen++) {
      const isTheirs = (BigInt(`0x${groups[seen] ?? ''}`) & BigInt(`0x${theirs}`)) !== 0n
      if (isTheirs && rung[seen]?.includes(sparse.topic) === true) waitsMs.push(performance.now() - enqueuedAt)
    }
  }
  expect(waitsMs).toHaveLength(25)
  // The ring that is on its way, and the short pause.
  expect(Math.max(...waitsMs)).toBeLessThanOrEqual(RING_MS + 6 + 1)
  // 27 without the others, and one or two more for each of them.
  expect(rung.length).toBeLessThanOrEqual(27 + 2 * 25)
})

test('pauses longer while events come for many streams, each of them rarely', async () => {
  const { ringer, rung } = process()
  for (let ms = 0; ms < 1000; ms++) {
    for (let n = 0; n < 2; n++) ringer.ring([{ topic: 'busy', key: `${ms} ${n}` }])
    await vi.advanceTimersByTimeAsync(1)
  }
  expect(rung.length).toBeLessThanOrEqual(27)
})

test('rings before it closes for what was committed during the last ring, without a pause', async () => {
  const { ringer, closing, rung } = process()
  ringer.ring([{ topic: 'first', key: 'k' }])
  await vi.advanceTimersByTimeAsync(RING_MS + 1)
  ringer.ring([{ topic: 'second', key: 'k' }])
  await vi.advanceTimersByTimeAsync(1)
  expect(rung).toEqual(['first'])
  closing.close()
  const settled = ringer.settled()
  await vi.advanceTimersByTimeAsync(RING_MS)
  await settled
  expect(rung).toEqual(['first', 'second'])
})

test('does not keep close() waiting for a server that does not answer', async () => {
  const { ringer, closing } = process(3_600_000)
  ringer.ring([{ topic: 'first', key: 'k' }])
  await vi.advanceTimersByTimeAsync(0)
  closing.close()
  const settled = ringer.settled()
  await vi.advanceTimersByTimeAsync(1000)
  await settled
})
