import { afterEach, expect, test, vi } from 'vitest'
import { signal } from '../../tools/server/testing/workbench.ts'
import { contextOf, eventOf, eventsOf } from '../sinks/sinkBench.conformance.ts'
import { ConcurrentStreams, type Delivery, EventRefusedError, type OutboxEvent } from './index.ts'

/** Slow for the test's purpose: whatever does not answer at once is. */
const hurried = (parts = {}): ReturnType<typeof contextOf> => contextOf({ slowAfterMs: 10, ...parts })
const beside = (): ReturnType<typeof contextOf> => hurried({ beside: true })
const kindOf = (answer: Delivery | undefined): string =>
  typeof answer === 'object' ? (Object.keys(answer)[0] as string) : String(answer)

afterEach(() => vi.useRealTimers())

/** Sets the clock alone: timers stay as they are. */
function pass(ms: number): void {
  if (!vi.isFakeTimers()) vi.useFakeTimers({ toFake: ['performance'] })
  vi.advanceTimersByTime(ms)
}

/** Answers at once, except for the streams that are held. */
function receiver(...held: string[]): {
  readonly begun: string[]
  readonly letGo: () => void
  readonly sendOne: (event: OutboxEvent) => Promise<Delivery>
} {
  const begun: string[] = []
  const free = signal()
  return {
    begun,
    letGo: () => free.give(),
    async sendOne({ key, seq }) {
      begun.push(`${key}${seq}`)
      if (held.includes(key)) await free.given
      return 'sent'
    },
  }
}

test('does not delay other streams of a batch behind a silent receiver', async () => {
  const streams = new ConcurrentStreams({ concurrency: 1 })
  const { sendOne, begun, letGo } = receiver('slow')
  const answers = await streams.send(eventsOf('t', ['slow', 'a', 'b'], 2), hurried(), sendOne)
  expect(answers.map(kindOf)).toEqual(['slow', 'sent', 'sent', 'unknown', 'sent', 'sent'])
  expect(begun).toEqual(['slow1', 'a1', 'a2', 'b1', 'b2'])
  letGo()
  await streams.settled()
})

test('does not send an event again that is in progress', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('slow')
  const events = eventsOf('t', ['slow'], 3)
  expect((await streams.send(events, hurried(), sendOne)).map(kindOf)).toEqual(['slow', 'unknown', 'unknown'])
  expect((await streams.send(events, beside(), sendOne)).map(kindOf)).toEqual(['slow', 'unknown', 'unknown'])
  expect(begun).toEqual(['slow1'])
  letGo()
  await streams.settled()
  expect(await streams.send(events, contextOf({ beside: true }), sendOne)).toEqual(['sent', 'sent', 'sent'])
  expect(begun).toEqual(['slow1', 'slow2', 'slow3'])
})

test('sends the tombstone of an event after the event that is in progress', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('slow')
  const event = eventOf('t', 'slow', 1)
  const tombstone = eventOf('t', 'slow', 1, { id: event.id, tombstone: 'skipped' })
  await streams.send([event], hurried(), sendOne)
  expect((await streams.send([tombstone], beside(), sendOne)).map(kindOf)).toEqual(['slow'])
  expect(begun).toEqual(['slow1'])
  letGo()
  await streams.settled()
  expect(await streams.send([tombstone], beside(), sendOne)).toEqual(['sent'])
  expect(begun).toEqual(['slow1', 'slow1'])
})

test('puts a slow stream aside, and retries it beside the others', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('slow')
  const [first, second] = eventsOf('t', ['slow'], 2) as [OutboxEvent, OutboxEvent]
  await streams.send([first], hurried(), sendOne)
  letGo()
  await streams.settled()
  expect(await streams.send([first], beside(), sendOne)).toEqual(['sent'])
  expect((await streams.send([second], hurried(), sendOne)).map(kindOf)).toEqual(['slow'])
  expect(begun).toEqual(['slow1'])
  expect(await streams.send([second], beside(), sendOne)).toEqual(['sent'])
})

test('accepts a refusal that comes late', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const held = signal()
  const event = eventOf('t', 'k', 1)
  const sendOne = async (): Promise<Delivery> => {
    await held.given
    throw new EventRefusedError('not this one')
  }
  expect((await streams.send([event], hurried(), sendOne)).map(kindOf)).toEqual(['slow'])
  held.give()
  await streams.settled()
  expect(await streams.send([event], beside(), sendOne)).toMatchObject([{ refused: 'not this one' }])
})

test('counts an error against its own event only', async () => {
  const streams = new ConcurrentStreams({ concurrency: 1 })
  const answers = await streams.send(eventsOf('t', ['bad', 'worse', 'good'], 1), contextOf(), async ({ key }) => {
    if (key === 'bad') throw new EventRefusedError('malformed')
    if (key === 'worse') throw new TypeError('null')
    return 'sent'
  })
  expect(answers.map(kindOf)).toEqual(['refused', 'failed', 'sent'])
})

test('waits for every answer without slowAfterMs', async () => {
  const streams = new ConcurrentStreams({ concurrency: 2 })
  const { sendOne, begun, letGo } = receiver('slow')
  const sending = streams.send(eventsOf('t', ['slow', 'a'], 2), contextOf(), sendOne)
  while (begun.length < 3) await new Promise(setImmediate)
  letGo()
  expect(await sending).toEqual(['sent', 'sent', 'sent', 'sent'])
})

test('limits how many events are in progress', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4, mostSlow: 1 })
  const { sendOne, letGo } = receiver('x', 'y')
  expect((await streams.send([eventOf('t', 'x', 1)], hurried(), sendOne)).map(kindOf)).toEqual(['slow'])
  const second = streams.send([eventOf('t', 'y', 1)], hurried(), sendOne)
  letGo()
  expect(await second).toEqual(['sent'])
})

test('limits how many streams of all shards are in progress', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4, processConcurrency: 3 })
  const free = signal()
  let [now, most] = [0, 0]
  const sendOne = async (): Promise<Delivery> => {
    most = Math.max(most, ++now)
    await free.given
    now--
    return 'sent'
  }
  const shards = ['a', 'b', 'c'].map((shard) =>
    streams.send(eventsOf('t', [`${shard}1`, `${shard}2`, `${shard}3`], 2), contextOf(), sendOne),
  )
  await new Promise(setImmediate)
  expect(now).toBe(3)
  free.give()
  expect((await Promise.all(shards)).flat()).toEqual(Array.from({ length: 18 }, () => 'sent'))
  expect(most).toBe(3)
})

test('does not count a stream as slow that waits for those of other shards', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const streams = new ConcurrentStreams({ concurrency: 4, processConcurrency: 1 })
  const { sendOne, begun, letGo } = receiver('held')
  const holding = streams.send([eventOf('t', 'held', 1)], contextOf(), sendOne)
  const waiting = streams.send([eventOf('t', 'a', 1)], hurried(), sendOne)
  await new Promise(setImmediate)
  // Three times as long as a stream has there.
  vi.advanceTimersByTime(30)
  expect(begun).toEqual(['held1'])
  letGo()
  expect([await holding, await waiting]).toEqual([['sent'], ['sent']])
})

test('does not hold a place for a slow event that continues beside the others', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4, processConcurrency: 1 })
  const { sendOne, letGo } = receiver('slow')
  const answers = await streams.send(eventsOf('t', ['slow', 'a'], 1), hurried(), sendOne)
  expect(answers.map(kindOf)).toEqual(['slow', 'sent'])
  letGo()
  await streams.settled()
})

test('leaves the events of a lost shard that wait for those of other shards', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4, processConcurrency: 1 })
  const { sendOne, begun, letGo } = receiver('held')
  const holding = streams.send([eventOf('t', 'held', 1)], contextOf(), sendOne)
  const lost = new AbortController()
  const waiting = streams.send([eventOf('t', 'a', 1)], contextOf({ signal: lost.signal }), sendOne)
  lost.abort()
  expect((await waiting).map(kindOf)).toEqual(['unknown'])
  letGo()
  expect(await holding).toEqual(['sent'])
  expect(await streams.send([eventOf('t', 'b', 1)], contextOf(), sendOne)).toEqual(['sent'])
  expect(begun).toEqual(['held1', 'b1'])
})

test('does not count an event as in progress that has not begun', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4 })
  let begun = 0
  const waiting = (_: OutboxEvent, late: AbortSignal | undefined): Promise<Delivery> =>
    new Promise((resolve) => late?.addEventListener('abort', () => resolve({ slow: 'it has not begun' })))
  const event = eventOf('t', 'k', 1)
  expect(await streams.send([event], hurried(), waiting)).toEqual([{ slow: 'it has not begun' }])
  const answers = await streams.send([event], beside(), async () => {
    begun++
    return 'sent'
  })
  expect([answers, begun]).toEqual([['sent'], 1])
})

// Once: the time without anything to send counted as silence. The streams were unknown and slow at once: not parked, and for a minute
// not tried.
test('counts streams as slow, not silent, after a quiet time', async () => {
  pass(0)
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('a', 'b', 'c')
  const events = eventsOf('t', ['a', 'b', 'c'], 1)
  pass(60_000)
  expect((await streams.send(events, hurried(), sendOne)).map(kindOf)).toEqual(['slow', 'slow', 'slow'])
  letGo()
  await streams.settled()
  expect(await streams.send(events, hurried(), sendOne)).toEqual(['sent', 'sent', 'sent'])
  expect(begun).toEqual(['a1', 'b1', 'c1'])
})

test('reports streams without an answer for ten seconds as unknown, and continues with the answer', async () => {
  pass(0)
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('a', 'b', 'c')
  const events = eventsOf('t', ['a', 'b', 'c'], 2)
  await streams.send(events, hurried(), sendOne)
  pass(10_100)
  const silent = await streams.send(events, hurried(), sendOne)
  expect(silent.slice(0, 3)).toEqual(Array.from({ length: 3 }, () => ({ unknown: 'nothing was answered for 10 s' })))
  // Each is tried, and waited for in its time.
  const again = streams.send(events, contextOf({ slowAfterMs: 5000 }), sendOne)
  letGo()
  expect(await again).toEqual(events.map(() => 'sent'))
  expect(begun).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'c2'])
})

test('returns an answer that came while its stream was parked', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('slow')
  const events = eventsOf('t', ['slow'], 2)
  await streams.send(events, hurried(), sendOne)
  expect((await streams.send(events, hurried(), sendOne)).map(kindOf)).toEqual(['slow', 'unknown'])
  letGo()
  await streams.settled()
  expect(await streams.send(events, hurried(), sendOne)).toEqual(['sent', 'sent'])
  expect(begun).toEqual(['slow1', 'slow2'])
})

// Once: the answer for an event that was given up as slow was kept, and an event of the replay was 'sent' by it, without being sent.
test('sends every event of a replay through the same sink', async () => {
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('slow')
  const events = eventsOf('t', ['slow'], 2)
  await streams.send(events, hurried(), sendOne)
  const replay = streams.send(events, contextOf({ dispatcher: 'replay' }), sendOne)
  await new Promise(setImmediate)
  // It waits for what is in progress.
  expect(begun).toEqual(['slow1'])
  letGo()
  expect(await replay).toEqual(['sent', 'sent'])
  expect(begun).toEqual(['slow1', 'slow1', 'slow2'])
  // The answer is still there for the dispatcher.
  expect(await streams.send(events, beside(), sendOne)).toEqual(['sent', 'sent'])
  expect(begun).toEqual(['slow1', 'slow1', 'slow2', 'slow2'])
})

test('sends an event again whose answer was never read', async () => {
  pass(0)
  const streams = new ConcurrentStreams({ concurrency: 4 })
  const { sendOne, begun, letGo } = receiver('slow')
  const events = eventsOf('t', ['slow'], 1)
  await streams.send(events, hurried(), sendOne)
  // While it is in progress it is not sent again, however long that takes.
  pass(600_000)
  expect((await streams.send(events, beside(), sendOne)).map(kindOf)).toEqual(['slow'])
  letGo()
  await streams.settled()
  pass(600_000)
  expect(await streams.send(events, beside(), sendOne)).toEqual(['sent'])
  expect(begun).toEqual(['slow1', 'slow1'])
})
