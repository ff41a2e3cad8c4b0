import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { InvalidOptionError, PayloadInvalidError, PayloadVersionError } from '../errors.ts'
import { defineEvents, type ReadableEvent, unchecked, VERSION_HEADER, withVersion } from './contracts.ts'
import type { StandardSchema } from './standardSchema.ts'

const SCHEMAS: Readonly<Record<string, StandardSchema>> = {
  zod: z.object({ id: z.string(), lines: z.array(z.object({ quantity: z.number() })) }),
  valibot: v.object({ id: v.string(), lines: v.array(v.object({ quantity: v.number() })) }),
  arktype: type({ id: 'string', lines: type({ quantity: 'number' }).array() }),
}

const eventOf = (payload: unknown, version?: number | string): ReadableEvent => ({
  topic: 'orders',
  key: '42',
  payload,
  headers: version === undefined ? {} : { [VERSION_HEADER]: String(version) },
})

function thrownBy(work: () => unknown): unknown {
  try {
    work()
  } catch (error) {
    return error
  }
  return undefined
}

describe.each(Object.entries(SCHEMAS))('a schema of %s', (_library, schema) => {
  const events = defineEvents({ orders: schema })

  test('takes a payload that fits', () => {
    const payload = { id: 'a', lines: [{ quantity: 1 }] }
    expect(events.read(eventOf(payload))).toMatchObject({ topic: 'orders', key: '42', payload })
  })

  test('refuses one that does not, with topic, key and issues', () => {
    const error = thrownBy(() => events.read(eventOf({ id: 'a', lines: [{ quantity: 'two' }] })))
    expect(error).toBeInstanceOf(PayloadInvalidError)
    expect(error).toMatchObject({
      code: 'LOCKSTEP_PAYLOAD_INVALID',
      topic: 'orders',
      key: '42',
      keys: ['orders/42'],
      issues: [{ path: ['lines', '0', 'quantity'] }],
    })
    expect((error as Error).message).toMatch(
      /^The payload of orders\/42 does not fit the contract of its topic: lines\.0\.quantity: /,
    )
  })
})

describe('versions', () => {
  const newest = z.object({ cents: z.number(), currency: z.string() })
  const events = defineEvents({
    orders: {
      version: 3,
      schema: newest,
      upcast: {
        1: ({ amount }: { amount: number }) => ({ cents: amount * 100 }),
        2: (old: { cents: number }) => ({ ...old, currency: 'EUR' }),
      },
    },
  })

  test('an older payload goes through each upcast in turn', () => {
    const wanted = { cents: 500, currency: 'EUR' }
    expect(events.read(eventOf({ amount: 5 })).payload).toEqual(wanted)
    expect(events.read(eventOf({ amount: 5 }, 1)).payload).toEqual(wanted)
    expect(events.read(eventOf({ cents: 500 }, 2)).payload).toEqual(wanted)
    expect(events.read(eventOf(wanted, 3)).payload).toEqual(wanted)
  })

  test('what an upcast gives is checked', () => {
    expect(() => events.read(eventOf({ amount: 'five' }, 1))).toThrow(PayloadInvalidError)
    const failing = defineEvents({
      orders: {
        version: 2,
        schema: newest,
        upcast: {
          1: () => {
            throw new Error('no rate')
          },
        },
      },
    })
    expect(() => failing.read(eventOf({}, 1))).toThrow(/upcast of orders\/42 from version 1 failed: no rate/)
  })

  test.each([
    [4, 4, /has version 4\. This process reads versions 1 to 3\. Deploy the newer contract/],
    ['three', undefined, /says that its version is "three"/],
    ['0', undefined, /says that its version is "0"/],
  ])('refuses the version %s', (said, version, message) => {
    const error = thrownBy(() => events.read(eventOf({}, said)))
    expect(error).toBeInstanceOf(PayloadVersionError)
    expect(error).toMatchObject({ code: 'LOCKSTEP_PAYLOAD_VERSION', topic: 'orders', key: '42', version })
    expect((error as Error).message).toMatch(message)
  })

  test('refuses a version whose upcast is gone', () => {
    const pruned = defineEvents({ orders: { version: 3, schema: newest, upcast: { 2: (old) => old } } })
    expect(() => pruned.read(eventOf({}, 1))).toThrow(/has version 1\. This process reads versions 2 to 3/)
  })

  test('a forwarded event loses the version of the other one', () => {
    expect(withVersion({ tenant: 'eu', 'Payload-Version': '7' }, 2)).toEqual({ tenant: 'eu', [VERSION_HEADER]: '2' })
  })
})

describe('reading', () => {
  test('gives what the schema makes of a payload, and leaves the event as it was', () => {
    const events = defineEvents({ orders: z.object({ at: z.coerce.date() }) })
    const event = Object.freeze(eventOf({ at: '2026-11-15T14:00:00.000Z' }))
    expect(events.read(event).payload).toEqual({ at: new Date('2026-11-15T14:00:00.000Z') })
    expect(event.payload).toEqual({ at: '2026-11-15T14:00:00.000Z' })
  })

  test('asks getters of the event only when they are asked for', () => {
    const events = defineEvents({ orders: unchecked() })
    let asked = 0
    const event = {
      ...eventOf({}),
      get body() {
        return ++asked
      },
    }
    const read = events.read(event)
    expect(asked).toBe(0)
    expect(read.body).toBe(1)
  })

  test('leaves a tombstone alone', () => {
    const events = defineEvents({ orders: z.object({}) })
    const event = { ...eventOf(undefined), tombstone: 'skipped' }
    expect(events.read(event)).toBe(event)
  })

  test('refuses a topic without a contract', () => {
    const events = defineEvents({ orders: z.object({}) })
    expect(() => events.read({ topic: 'mails', key: 'a', payload: {} })).toThrow(/mails\/a.*the topic has no contract/)
  })

  test('shows only the first issues', () => {
    const events = defineEvents({ orders: z.array(z.number()) })
    const error = thrownBy(() => events.read(eventOf(Array.from({ length: 9 }, () => 'x')))) as PayloadInvalidError
    expect(error.message).toContain('and 4 more')
    expect(error.issues).toHaveLength(9)
  })

  test('refuses what answers with a promise, and leaves no rejection behind', async () => {
    const rejecting: StandardSchema = {
      '~standard': { version: 1, vendor: 'test', validate: () => Promise.reject(new Error('later')) },
    }
    expect(() => defineEvents({ orders: rejecting }).read(eventOf({}))).toThrow(InvalidOptionError)
    const asynchronous = defineEvents({ orders: z.object({}).refine(() => Promise.resolve(true)) })
    expect(() => asynchronous.read(eventOf({}))).toThrow(/schema of the topic orders answered with a promise/)
    const upcasting = defineEvents({
      orders: { version: 2, schema: z.object({}), upcast: { 1: () => Promise.reject(new Error('later')) } },
    })
    expect(() => upcasting.read(eventOf({}))).toThrow(/answered with a promise/)
    // A rejection that no one handles would fail the run.
    await new Promise((resolve) => setImmediate(resolve))
  })
})

describe('definitions', () => {
  const schema = z.object({})
  test.each([
    [{}],
    [undefined],
    [{ orders: undefined }],
    [{ orders: {} }],
    [{ orders: { schema: { '~standard': { version: 2, validate: () => undefined } } } }],
    [{ orders: { schema, version: 0 } }],
    [{ orders: { schema, version: 1.5 } }],
    [{ orders: { schema, versions: 2 } }],
    [{ orders: { schema, version: 2, upcast: { 1: 'x' } } }],
    [{ orders: { schema, version: 2, upcast: { 2: (old: unknown) => old } } }],
    [{ orders: { schema, version: 3, upcast: { 1: (old: unknown) => old } } }],
    [{ orders: { schema, version: 2, upcast: { one: (old: unknown) => old } } }],
  ])('refuses %j', (topics) => {
    expect(() => defineEvents(topics as never)).toThrow(InvalidOptionError)
  })
})
