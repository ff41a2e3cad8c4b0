import { expect, test } from 'vitest'
import type { OverviewSnapshot } from 'pg-lockstep/console'
import { concerns } from './attention.ts'

const calm: OverviewSnapshot = {
  at: '2026-01-01T00:00:00.000Z',
  commitsPerSecond: 10,
  rollbacksPerSecond: 0,
  enqueuedPerSecond: 5,
  deliveredPerSecond: 5,
  locksHeld: 3,
  lockWaiters: 2,
  longestLockWaitMs: 40,
  leasesHeld: 1,
  leaseWaiters: 0,
  outboxLagEvents: 7,
  outboxLagMs: 20,
  parkedStreams: 0,
  shardsWithoutOwner: 0,
  connections: 20,
  maxConnections: 100,
}

const texts = (changed: Partial<OverviewSnapshot>): string[] =>
  concerns({ ...calm, ...changed }).map(({ tab, urgent, text }) => `${tab}${urgent ? '!' : ''} ${text}`)

test('reports no concern for a short wait and a short lag', () => {
  expect(texts({})).toEqual([])
})

test('names each concern and its tab', () => {
  expect(texts({ shardsWithoutOwner: 1 })).toEqual(['outbox! 1 shard has no owner: no process delivers what is in it.'])
  expect(texts({ shardsWithoutOwner: 2 })).toEqual([
    'outbox! 2 shards have no owner: no process delivers what is in them.',
  ])
  expect(texts({ parkedStreams: 3 })).toEqual(['outbox 3 streams are parked, blocked or paused.'])
  expect(texts({ lockWaiters: 1, longestLockWaitMs: 2_000 })).toEqual([
    'locks 1 session waits for a lock, the longest for 2.0 s.',
  ])
  expect(texts({ outboxLagMs: 61_000 })).toEqual(['outbox! The outbox is 1 min 1 s behind: 7 events to deliver.'])
  expect(texts({ connections: 80 })).toEqual(['overview! 80 of 100 connections of the server are in use.'])
})

test('lists urgent concerns first', () => {
  expect(texts({ parkedStreams: 1, longestLockWaitMs: 20_000 }).map((text) => text.split(' ')[0])).toEqual([
    'locks!',
    'outbox',
  ])
})
