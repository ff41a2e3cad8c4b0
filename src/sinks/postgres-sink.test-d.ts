import type pg from 'pg'
import type postgres from 'postgres'
import { expectTypeOf, test } from 'vitest'
import { Lockstep, type OutboxEvent } from '../index.ts'
import { postgresSink } from './postgres-sink.ts'

declare const pool: pg.Pool
declare const sql: postgres.Sql

interface Booked {
  readonly portfolio: string
}

test('a Lockstep of either driver, and its transactions with their events and client', () => {
  postgresSink({
    lockstep: new Lockstep<{ booked: Booked }, pg.Pool>(pool),
    consumer: 'book-keeper',
    async handle(tx, event) {
      expectTypeOf(event).toEqualTypeOf<OutboxEvent>()
      expectTypeOf(tx.client).toEqualTypeOf<pg.PoolClient>()
      await tx.enqueue({ topic: 'booked', key: event.key, payload: { portfolio: event.key } })
      // @ts-expect-error: there is no such topic.
      await tx.enqueue({ topic: 'lost', key: event.key, payload: {} })
    },
  })
  postgresSink({
    lockstep: new Lockstep(sql),
    consumer: 'book-keeper',
    async handleMany(tx, events) {
      expectTypeOf(events).toEqualTypeOf<readonly OutboxEvent[]>()
      await tx.query('SELECT 1')
    },
  })
})

test('invalid options do not compile', () => {
  // @ts-expect-error: a pool is no Lockstep.
  postgresSink({ lockstep: pool, consumer: 'book-keeper', handle: async () => undefined })
  // @ts-expect-error: without a name nothing is remembered.
  postgresSink({ lockstep: new Lockstep(pool), handle: async () => undefined })
})
