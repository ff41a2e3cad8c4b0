import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, expectTypeOf, test } from 'vitest'
import type { LeaseLostReason } from '../errors.ts'
import { type EventMessage, events, lockRequested, on } from './events.ts'

const message = { schema: 'lockstep', keys: ['Transfer:1'], sharedKeys: [] }

test('has one channel per event, with its name', () => {
  for (const [name, channel] of Object.entries(events)) expect(channel.name).toBe(`lockstep:${name}`)
  expect(new Set(Object.values(events)).size).toBe(Object.keys(events).length)
})

test('delivers to a listener of on() until it is stopped', () => {
  const heard: unknown[] = []
  const listener = (each: unknown): void => void heard.push(each)
  const stopFirst = on('lock.requested', listener)
  const stopSecond = on('lock.requested', listener)
  lockRequested.publish(message)
  expect(heard).toEqual([message, message])
  stopFirst()
  stopFirst()
  lockRequested.publish(message)
  expect(heard).toHaveLength(3)
  stopSecond()
  lockRequested.publish(message)
  expect(heard).toHaveLength(3)
})

test('reports whether a channel has subscribers', () => {
  expect(lockRequested.hasSubscribers).toBe(false)
  const stop = on('lock.requested', () => undefined)
  expect(lockRequested.hasSubscribers).toBe(true)
  stop()
  expect(lockRequested.hasSubscribers).toBe(false)
})

test('uses channels of Node that other tools can subscribe to', () => {
  const heard: unknown[] = []
  const listener = (each: unknown): void => void heard.push(each)
  subscribe('lockstep:lock.requested', listener)
  lockRequested.publish(message)
  unsubscribe('lockstep:lock.requested', listener)
  lockRequested.publish(message)
  expect(heard).toEqual([message])
})

test('types messages by their event', () => {
  expectTypeOf<EventMessage<'lock.released'>['outcome']>().toEqualTypeOf<'committed' | 'rolledBack' | 'unknown'>()
  expectTypeOf<EventMessage<'migration.applied'>>().toHaveProperty('version')
  expectTypeOf<EventMessage<'combine.batch'>['outcome']>().toEqualTypeOf<'committed' | 'failed' | 'halved'>()
  expectTypeOf<EventMessage<'lease.renewed'>['outcome']>().toEqualTypeOf<'renewed' | 'unknown'>()
  expectTypeOf<EventMessage<'lease.lost'>>().toHaveProperty('reason').toEqualTypeOf<LeaseLostReason>()
  expectTypeOf<EventMessage<'lease.refused'>>().not.toHaveProperty('fence')
  expectTypeOf<EventMessage<'rows.outOfOrder'>>().not.toHaveProperty('schema')
})
