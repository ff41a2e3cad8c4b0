import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import { hotKey } from './hotKey.ts'
import { leases } from './leases.ts'
import { locks } from './locks.ts'
import { observeAgainst } from './observe.ts'
import { outbox } from './outbox.ts'
import { outboxLatency } from './outboxLatency.ts'
import { sinks } from './sinks.ts'

/** Times are no business of a test; that the bench runs, and what it counts, is. */
test('bench locks measures every driver and isolation, and counts two round trips', { timeout: 120_000 }, async () => {
  const { results, goals } = await locks.run('smoke', () => undefined)
  expect(results).toHaveLength(8)
  for (const row of results) expect(row['ratio']).toBeGreaterThan(0)
  const counted = goals.filter((goal) => goal.name.includes('round trips'))
  expect(counted).toHaveLength(4)
  expect(counted.filter((goal) => !goal.holds)).toEqual([])
})

test('bench observe hears the candidate and never the baseline, and leaves no copy', { timeout: 120_000 }, async () => {
  const bench = observeAgainst('src')
  const [stub] = Object.values(bench.baselines)
  expect(stub).toContain('export const lockAcquired = silent')
  const { results, goals } = await bench.run('smoke', () => undefined)
  expect(results).toHaveLength(6)
  for (const row of results) expect(row['ratio']).toBeGreaterThan(0)
  expect(goals.filter((goal) => goal.name.includes('ratio'))).toHaveLength(6)
  const counted = goals.filter((goal) => goal.name.includes('counted'))
  expect(counted.map((goal) => goal.value)).toEqual([60, 60, 60])
  expect(counted.filter((goal) => !goal.holds)).toEqual([])
  const left = readdirSync(new URL('../.lockstep/', import.meta.url))
  expect(left.filter((name) => name.startsWith('bench-observe-'))).toEqual([])
})

test('bench hot-key serves every way in every contest', { timeout: 120_000 }, async () => {
  const { results, goals } = await hotKey.run('smoke', () => undefined)
  expect(results).toHaveLength(4)
  for (const row of results) {
    expect(row['baseline/s']).toBeGreaterThan(0)
    expect(row['combine/s']).toBeGreaterThan(0)
  }
  expect(goals).toHaveLength(5)
})

test('bench leases measures every row, and a refusal writes nothing', { timeout: 120_000 }, async () => {
  const { results, goals } = await leases.run('smoke', () => undefined)
  expect(results).toHaveLength(5)
  for (const row of results) expect(row['lockstep']).toBeGreaterThan(0)
  expect(goals.find((each) => each.name.startsWith('WAL'))).toMatchObject({ value: 0, holds: true })
})

test('bench outbox measures every row, and leaves no dead event', { timeout: 120_000 }, async () => {
  const { results, goals } = await outbox.run('smoke', () => undefined)
  expect(results).toHaveLength(9)
  for (const row of results) expect(row['ratio']).toBeGreaterThan(0)
  expect(goals).toHaveLength(7)
  expect(goals.at(-1)).toMatchObject({ name: 'dead tuples among the events', value: 0, holds: true })
})

test(
  'bench outbox-latency hears of every event, and counts what an idle dispatcher asks',
  { timeout: 120_000 },
  async () => {
    const { results, goals } = await outboxLatency.run('smoke', () => undefined)
    expect(results).toHaveLength(2)
    for (const row of results) expect(row['p99 ms']).toBeGreaterThan(0)
    const [asked] = goals.filter((goal) => goal.name.includes('questions'))
    expect(asked?.value).toBeGreaterThan(0)
  },
)

test('bench sinks measures every sink against its broker', { timeout: 120_000 }, async () => {
  const { results, goals } = await sinks.run('smoke', () => undefined)
  expect(results.map(({ sink }) => sink)).toEqual(['redis', 'nats', 'kafka', 'rabbitmq', 'webhook', 'postgres'])
  for (const row of results) expect(row['ratio']).toBeGreaterThan(0)
  expect(goals.filter((goal) => !goal.holds)).toEqual([])
})
