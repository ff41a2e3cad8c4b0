import { expect, test } from 'vitest'
import { messageHeaders, readMessage } from './message.ts'
import { eventOf } from './sinkBench.conformance.ts'

test('returns what an event was enqueued with', () => {
  const event = eventOf('trades', 'Größe/1', 7, { payload: { n: 1 }, headers: { tenant: 'eu' }, fence: 3n })
  const read = readMessage(messageHeaders(event), event.body)
  const { topic, key, seq, id, fence, headers, enqueuedAt, payload } = event
  expect(read).toMatchObject({ topic, key, seq, id, fence, headers, enqueuedAt, tombstone: undefined })
  expect(read.payload).toEqual(payload)
})

test.each(['lockstep-tombstone', 'Lockstep-Tombstone', 'lockstep-seq', 'LOCKSTEP-ID', 'Content-Type', 'lockstep-new'])(
  'does not let a header %s of the event replace its own',
  (name) => {
    const event = eventOf('trades', 'a', 7, { headers: { [name]: 'dead', tenant: 'eu' } })
    const read = readMessage(messageHeaders(event), event.body)
    expect(read).toMatchObject({ seq: 7, id: event.id, tombstone: undefined, headers: { tenant: 'eu' } })
    expect(read.contentType).toBe('application/json')
    expect(read.payload).toEqual({ seq: 7 })
    // The event itself is as it was.
    expect(event.headers).toHaveProperty([name])
  },
)

test('rejects a foreign message, and names the missing header', () => {
  expect(() => readMessage({ 'lockstep-topic': 'a', 'lockstep-key': 'b' }, '')).toThrow('lockstep-seq')
})

test.each([
  ['lockstep-topic', '%'],
  ['lockstep-key', '%ff'],
  ['lockstep-seq', 'seven'],
  ['lockstep-seq', ''],
  ['lockstep-seq', '1e3'],
  ['lockstep-fence', 'x'],
  ['lockstep-enqueued-at', 'yesterday'],
])('rejects a message in which %s is %j', (name, value) => {
  const event = eventOf('trades', 'a', 7)
  expect(() => readMessage({ ...messageHeaders(event), [name]: value }, event.body)).toThrow(
    expect.objectContaining({
      code: 'LOCKSTEP_INVALID_OPTION',
      message: expect.stringContaining(name) as string,
    }) as Error,
  )
})

test('ignores foreign headers', () => {
  const event = eventOf('trades', 'a', 7, { headers: { tenant: 'eu' } })
  const others = { 'x-null': null, 'x-count': 3, 'x-death': [{ count: 1 }], 'x-none': [] } as unknown as Record<
    string,
    string
  >
  expect(readMessage({ ...messageHeaders(event), ...others }, event.body).headers).toEqual({ tenant: 'eu' })
})

test('reads headers as bytes, lists and in any case', () => {
  const event = eventOf('trades', 'a', 7)
  const bytes = Object.fromEntries(
    Object.entries(messageHeaders(event)).map(([name, value], n) => [
      n % 2 === 0 ? name.toUpperCase() : name,
      n % 3 === 0 ? [Buffer.from(value)] : Buffer.from(value),
    ]),
  )
  expect(readMessage(bytes, event.body)).toMatchObject({ topic: 'trades', key: 'a', seq: 7, id: event.id })
})
