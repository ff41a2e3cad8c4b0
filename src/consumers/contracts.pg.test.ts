import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import {
  defineEvents,
  type InboxEvent,
  Lockstep,
  type PayloadInvalidError,
  type ReadableEvent,
  type StandardSchema,
  type TopicContract,
} from '../index.ts'

const bench = await testBench()

const first = z.object({ amount: z.number() })
const second = z.object({ cents: z.number().int(), currency: z.string() })
const contractOf = {
  v1: { schema: first },
  v2: {
    schema: second,
    version: 2,
    upcast: { 1: ({ amount }: z.infer<typeof first>) => ({ cents: amount * 100, currency: 'EUR' }) },
  },
} satisfies Record<string, TopicContract>

/** A process with this contract, on a pool of its own. */
function open(topic: string, contract: StandardSchema | TopicContract): Lockstep {
  const { again } = bench.open('pg', { max: 6 })
  return again({ events: defineEvents({ [topic]: contract }) })
}

let topics = 0
const topicOf = (): string => `orders-${++topics}`

test('enqueues nothing that does not fit, and says where', async () => {
  const topic = topicOf()
  const lockstep = open(topic, contractOf.v2)
  const error = (await failureOf(
    lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ topic, key: 'a', payload: { cents: 5, currency: 'EUR' } })
      await tx.enqueueMany([
        { topic, key: 'a', payload: { cents: 6, currency: 'EUR' } },
        { topic, key: 'b', payload: { cents: 0.5, currency: 'EUR' } },
      ])
    }),
  )) as PayloadInvalidError
  expect(error).toMatchObject({ code: 'LOCKSTEP_PAYLOAD_INVALID', topic, key: 'b', issues: [{ path: ['cents'] }] })
  expect((await lockstep.outbox.events({ topic })).events).toEqual([])
})

test('takes nothing of a call in which one payload does not fit, and leaves the transaction open', async () => {
  const topic = topicOf()
  const lockstep = open(topic, contractOf.v2)
  await lockstep.transaction({}, async (tx) => {
    const fits = { topic, key: 'a', payload: { cents: 5, currency: 'EUR' } }
    await failureOf(tx.enqueueMany([fits, { topic, key: 'a', payload: {} }]))
    await failureOf(tx.enqueue({ topic: 'unknown', key: 'a', payload: {} }))
    await tx.enqueue(fits)
  })
  const { events } = await lockstep.outbox.events({ topic, payloads: true })
  expect(events).toMatchObject([{ seq: 1, headers: { 'payload-version': '2' } }])
})

test('checks the payload after a round trip through JSON, as consumers do', async () => {
  const topic = topicOf()
  const dates = open(topic, z.object({ at: z.date() }))
  const write = (lockstep: Lockstep): Promise<void> =>
    lockstep.transaction({}, (tx) => tx.enqueue({ topic, key: 'a', payload: { at: new Date(0) } }))
  expect(await failureOf(write(dates))).toMatchObject({ code: 'LOCKSTEP_PAYLOAD_INVALID' })
  const texts = open(topic, z.object({ at: z.coerce.date() }))
  await write(texts)
  const seen: unknown[] = []
  await texts.consumer(topic, { topics: [topic] }, ({ payload }) => void seen.push(payload)).drain()
  expect(seen).toEqual([{ at: new Date(0) }])
})

test('checks what a caller enqueues in its own transaction, and bytes', async () => {
  const topic = topicOf()
  const lockstep = open(topic, {
    schema: {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value) =>
          value instanceof Uint8Array && value[0] === 7
            ? { value }
            : { issues: [{ message: 'does not begin with 7' }] },
      },
    },
  })
  const session = await bench.session()
  await session.query('BEGIN')
  const enqueue = (byte: number): Promise<unknown> =>
    lockstep.outbox.enqueue(session, { topic, key: 'a', payload: Buffer.of(byte) })
  expect(await failureOf(enqueue(6))).toMatchObject({ code: 'LOCKSTEP_PAYLOAD_INVALID' })
  expect(await enqueue(7)).toEqual({ seq: 1 })
  await session.query('COMMIT')
  expect(await failureOf(enqueue(6))).toMatchObject({ code: 'LOCKSTEP_PAYLOAD_INVALID' })
})

test('parks an event that does not fit as refused, with the issues in the reason', async () => {
  const topic = topicOf()
  const plain = bench.open('pg', { max: 6 }).lockstep
  await plain.transaction({}, async (tx) => {
    for (const amount of [1, 'two', 3]) await tx.enqueue({ topic, key: 'bad', payload: { amount } })
    await tx.enqueue({ topic, key: 'good', payload: { amount: 1 } })
  })
  const lockstep = open(topic, contractOf.v1)
  const seen: string[] = []
  const options = { topics: [topic], attempts: 1, backoffMs: { first: 1, longest: 1 } }
  const consumer = lockstep.consumer(topic, options, ({ key, seq }) => void seen.push(`${key}${seq}`))
  const running = consumer.run()
  const parked = async (): Promise<unknown> => (await lockstep.outbox.parked({ dispatcher: topic }))[0]
  await expect
    .poll(parked, { timeout: 30_000 })
    .toMatchObject({ key: 'bad', head: 2, state: 'blocked', reason: expect.stringContaining('amount: ') })
  const options2 = { reason: 'wrong unit' }
  await lockstep.outbox.skip({ dispatcher: topic, topic, key: 'bad', seq: 2 }, options2)
  await expect
    .poll(() => lockstep.inbox.consumer(topic).position({ topic, key: 'bad' }), { timeout: 30_000 })
    .toMatchObject({ seq: 3 })
  await consumer.stop()
  await running
  expect(new Set(seen)).toEqual(new Set(['bad1', 'bad3', 'good1']))
})

test('processes of two versions enqueue at the same time, and a new consumer sees one shape', async () => {
  const topic = topicOf()
  const [old, young] = [open(topic, contractOf.v1), open(topic, contractOf.v2)]
  for (let n = 1; n <= 3; n++) {
    await old.transaction({}, (tx) => tx.enqueue({ topic, key: 'k', payload: { amount: n } }))
    await young.transaction({}, (tx) => tx.enqueue({ topic, key: 'k', payload: { cents: n, currency: 'USD' } }))
  }
  const seen: unknown[] = []
  const options = { topics: [topic], shards: 1, concurrency: 1 }
  await young.consumer(topic, options, ({ seq, payload }) => void seen.push([seq, payload])).drain()
  expect(seen).toEqual([
    [1, { cents: 100, currency: 'EUR' }],
    [2, { cents: 1, currency: 'USD' }],
    [3, { cents: 200, currency: 'EUR' }],
    [4, { cents: 2, currency: 'USD' }],
    [5, { cents: 300, currency: 'EUR' }],
    [6, { cents: 3, currency: 'USD' }],
  ])
})

test('a consumer of the old version leaves newer events to one of the new version', async () => {
  const topic = topicOf()
  const [old, young] = [open(topic, contractOf.v1), open(topic, contractOf.v2)]
  await old.transaction({}, (tx) => tx.enqueue({ topic, key: 'k', payload: { amount: 1 } }))
  await young.transaction({}, (tx) => tx.enqueue({ topic, key: 'k', payload: { cents: 2, currency: 'USD' } }))
  await old.transaction({}, (tx) => tx.enqueue({ topic, key: 'k', payload: { amount: 3 } }))
  const seen: unknown[] = []
  const options = { topics: [topic], shards: 1 }
  await old.consumer(topic, options, ({ payload }) => void seen.push(payload)).drain()
  expect(seen).toEqual([{ amount: 1 }])
  expect(await old.outbox.parked({ dispatcher: topic })).toMatchObject([
    {
      head: 2,
      reason: expect.stringContaining('has version 2. This process reads version 1. Deploy the newer contract'),
    },
  ])
  await young.outbox.retry({ dispatcher: topic, topic, key: 'k' })
  await young.consumer(topic, options, ({ payload }) => void seen.push(payload)).drain()
  expect(seen.slice(1)).toEqual([
    { cents: 2, currency: 'USD' },
    { cents: 300, currency: 'EUR' },
  ])
})

test('the inbox reads by contracts, and only what it handles', async () => {
  const topic = topicOf()
  const { lockstep } = bench.open('pg')
  const events = defineEvents({ [topic]: contractOf.v2 })
  const inbox = lockstep.inbox.consumer(topic)
  const eventOf = (seq: number, payload: unknown, headers = {}): InboxEvent & ReadableEvent => ({
    topic,
    key: 'k',
    seq,
    id: randomUUID(),
    payload,
    headers,
  })
  const seen: unknown[] = []
  const handle = (event: ReturnType<typeof eventOf>): Promise<unknown> =>
    inbox.handle(event, { events }, (_tx, { payload }) => void seen.push(payload))
  const one = eventOf(1, { amount: 1 })
  expect(await handle(one)).toBe('first')
  expect(await failureOf(handle(eventOf(2, { amount: 'x' })))).toMatchObject({
    code: 'LOCKSTEP_PAYLOAD_INVALID',
    key: 'k',
  })
  expect(await failureOf(handle(eventOf(2, {}, { 'payload-version': '3' })))).toMatchObject({
    code: 'LOCKSTEP_PAYLOAD_VERSION',
    version: 3,
  })
  expect(await inbox.position({ topic, key: 'k' })).toMatchObject({ seq: 1 })
  expect(await handle({ ...one, payload: 'anything' })).toBe('duplicate')
  expect(seen).toEqual([{ cents: 100, currency: 'EUR' }])
})
