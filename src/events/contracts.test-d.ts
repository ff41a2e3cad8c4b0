import { type } from 'arktype'
import type pg from 'pg'
import * as v from 'valibot'
import { expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import { type ConsumedEvent, defineEvents, type EventContracts, Lockstep, unchecked } from '../index.ts'
import { redisConsumer, type RedisConsumerOptions } from '../sinks/redis.ts'
import type { ReceivedEvent } from '../sinks/message.ts'

interface Legacy {
  readonly n: number
}

declare const pool: pg.Pool
declare const received: ReceivedEvent
declare const redisOptions: Omit<RedisConsumerOptions, 'events'>

const events = defineEvents({
  trades: z.object({ id: z.number(), at: z.coerce.date<string>() }),
  mails: v.object({ to: v.string() }),
  prices: type({ symbol: 'string' }),
  orders: {
    version: 2,
    schema: z.object({ id: z.string(), currency: z.string() }),
    upcast: { 1: (old: { id: string }) => ({ ...old, currency: 'EUR' }) },
  },
  legacy: unchecked<Legacy>(),
})
const lockstep = new Lockstep(pool, { events })

test('what is enqueued is what the schema takes', () => {
  void lockstep.transaction({}, async (tx) => {
    await tx.enqueue({ topic: 'trades', key: 'a', payload: { id: 1, at: '2026-11-15T14:00:00Z' } })
    await tx.enqueue({ topic: 'legacy', key: 'a', payload: { n: 1 } })
    await tx.enqueue({ topic: 'prices', key: 'a', payload: { symbol: 'X' } })
    // @ts-expect-error no such topic
    await tx.enqueue({ topic: 'trade', key: 'a', payload: { id: 1, at: '' } })
    // @ts-expect-error a date is what consumers get
    await tx.enqueue({ topic: 'trades', key: 'a', payload: { id: 1, at: new Date() } })
    // @ts-expect-error the shape of version 1
    await tx.enqueue({ topic: 'orders', key: 'a', payload: { id: 'a' } })
  })
})

test('what is consumed is what the schema gives', () => {
  lockstep.consumer('billing', { topics: ['trades'] }, (event) => {
    expectTypeOf(event).toEqualTypeOf<ConsumedEvent<{ id: number; at: Date }, 'trades'>>()
  })
  lockstep.consumer('all', {}, (event) => {
    if (event.topic === 'orders') expectTypeOf(event.payload).toEqualTypeOf<{ id: string; currency: string }>()
    if (event.topic === 'mails') expectTypeOf(event.payload).toEqualTypeOf<{ to: string }>()
    if (event.topic === 'prices') expectTypeOf(event.payload).toEqualTypeOf<{ symbol: string }>()
    if (event.topic === 'legacy') expectTypeOf(event.payload).toEqualTypeOf<Legacy>()
  })
})

test('a consumer of a broker and the inbox know the producer by its contracts', () => {
  const effects = new Lockstep(pool)
  redisConsumer('billing', { ...redisOptions, lockstep: effects, events }, (event) => {
    if (event.topic === 'trades') expectTypeOf(event.payload.at).toEqualTypeOf<Date>()
  })
  redisConsumer('billing', { ...redisOptions, lockstep: effects }, (event) => {
    expectTypeOf(event).toEqualTypeOf<ConsumedEvent>()
  })
  void effects.inbox.consumer('billing').handle(received, { events }, (_tx, event) => {
    expectTypeOf(event.headers).toEqualTypeOf<Readonly<Record<string, string>>>()
    if (event.topic === 'orders') expectTypeOf(event.payload.currency).toEqualTypeOf<string>()
  })
  const event = events.read(received)
  if (event.topic === 'trades') expectTypeOf(event.payload.at).toEqualTypeOf<Date>()
})

test('the events of a Lockstep can be stated beside its contracts', () => {
  interface Events {
    legacy: Legacy
  }
  const contracts: EventContracts<Events, Events> = defineEvents({ legacy: unchecked<Legacy>() })
  expectTypeOf(new Lockstep<Events>(pool, { events: contracts })).toExtend<Lockstep<Events>>()
  // @ts-expect-error the contracts are of other topics
  void new Lockstep<Events>(pool, { events: defineEvents({ trades: unchecked<Legacy>() }) })
  // @ts-expect-error not made by defineEvents()
  void new Lockstep(pool, { events: { trades: unchecked<Legacy>() } })
})

test('only schemas and contracts are taken', () => {
  // @ts-expect-error no schema
  defineEvents({ trades: {} })
  // @ts-expect-error no schema
  defineEvents({ trades: { version: 2 } })
  // @ts-expect-error no function
  defineEvents({ trades: { schema: z.string(), version: 2, upcast: { 1: 'x' } } })
})
