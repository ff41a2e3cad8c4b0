import type pg from 'pg'
import { expectTypeOf, test } from 'vitest'
import { key, type Lease, Lockstep, lockRows, type Transaction } from '../index.ts'
import { exclusive, idempotent } from './index.ts'

interface Events {
  readonly trades: { readonly id: number }
}

declare const pool: pg.Pool

test('a Lockstep with typed events guards handlers, and passes transactions with these events', () => {
  const lockstep = new Lockstep<Events, pg.Pool>(pool)
  const guard = idempotent(lockstep, { scope: (request: Request) => request.url })
  type Given = Parameters<Parameters<typeof guard.handle>[1]>[0]
  expectTypeOf<Given>().toEqualTypeOf<Transaction<pg.PoolClient, Events>>()
  const oneAtATime = exclusive(lockstep, { key: (request: Request) => key`Instance:${request.url}` })
  expectTypeOf<Parameters<Parameters<typeof oneAtATime.handle>[1]>[0]>().toEqualTypeOf<Lease<pg.PoolClient>>()
})

test('lockRows takes its transaction', () => {
  expectTypeOf(lockRows).toBeCallableWith({} as Transaction<pg.PoolClient, Events>, 'accounts', ['alice'])
})
