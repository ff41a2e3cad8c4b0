import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Closing } from '../locks/index.ts'
import type { PartSetup } from '../transactions/index.ts'
import { Ringer } from './ringer.ts'

const RING_MS = 2

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A process whose rings take so long each, and what was rung. */
function process(ringMs = RING_MS): { ringer: Ringer; closing: Closing; rung: string[] } {
  const rung: string[] = []
  const connection = {
    async script(text: string) {
      rung.push(/ t:(\w+)/.exec(text)?.[1] ?? '')
      await new Promise((resolve) => setTimeout(resolve, ringMs))
      return [{ command: 'SELECT', rowCount: 1, rows: [{ rung: 'true' }] }]
    },
    release() {},
  }
  const closing = new Closing()
  const driver = { connect: () => Promise.resolve(connection) }
  const silence = { silenceMs: 1000, start: () => undefined, stop: () => undefined }
  const setup = { driver, silence, closing, schema: 'lockstep', quotedSchema: 'lockstep' }
  return { ringer: new Ringer(setup as unknown as PartSetup), closing, rung }
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
