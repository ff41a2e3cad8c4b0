import { readdirSync } from 'node:fs'
import { expect, test } from 'vitest'
import { ormsUnderTest } from '../tools/orms/underTest/index.ts'
import { previousRelease } from '../tools/previousRelease/previousRelease.ts'
import { against } from './against.ts'
import { benches } from './benches.ts'
import { pgqIsThere } from './contenders/arena.ts'
import type { Measured } from './bench.ts'
import { ensurePeers } from './harness/peers.ts'
import { observeAgainst } from './observe.ts'

/** Times are no business of a test; that each bench runs, with all that it is compared with, and what it counts, is. */
const TIMEOUT = { timeout: 240_000 }

function smoke(name: string): Promise<Measured> {
  const bench = benches[name]
  if (bench === undefined) throw new Error(`there is no bench ${name}`)
  return bench.run('smoke', () => undefined)
}

/** Every cell that is a number is one that was measured. */
function expectMeasured({ results, goals }: Measured): void {
  for (const row of results) {
    for (const [column, value] of Object.entries(row)) {
      if (typeof value === 'number') expect(Number.isFinite(value), `${column} of ${JSON.stringify(row)}`).toBe(true)
    }
  }
  for (const { name, value } of goals) expect(Number.isFinite(value), name).toBe(true)
}

/** Each limit was measured, and its goal is judged with the others. */
function expectLimits({ limits = [], goals }: Measured, count: number): void {
  expect(limits).toHaveLength(count)
  for (const { what, lockstep, limit, goal } of limits) {
    // A notification can come before the answer to COMMIT: from there it takes no time.
    expect(lockstep, what).toBeGreaterThanOrEqual(0)
    expect(limit, what).toBeGreaterThanOrEqual(0)
    expect(goals).toContain(goal)
  }
}

test('installs the peers', TIMEOUT, () => {
  ensurePeers()
})

test('bench locks measures every driver and isolation level, and counts two round trips', TIMEOUT, async () => {
  const measured = await smoke('locks')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(9)
  expectLimits(measured, 8)
  const counted = measured.goals.filter((goal) => goal.name.includes('round trips'))
  expect(counted).toHaveLength(4)
  expect(counted.filter((goal) => !goal.holds)).toEqual([])
})

test('bench guard measures Lockstep and the slow way, which Lockstep does not take', TIMEOUT, async () => {
  const measured = await smoke('guard')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(12)
  expect(measured.goals.find(({ name }) => name.includes('slow way'))).toMatchObject({ value: 0, holds: true })
})

test('bench orm measures every ORM against its own transaction', TIMEOUT, async () => {
  const measured = await smoke('orm')
  expectMeasured(measured)
  expect(measured.results.map(({ orm }) => orm)).toEqual(ormsUnderTest.map(({ name }) => name))
  expect(measured.goals).toHaveLength(ormsUnderTest.length)
})

test('bench observe receives events of the candidate only, and leaves no copy', TIMEOUT, async () => {
  const bench = observeAgainst('src')
  const [stub] = Object.values(bench.baselines)
  expect(stub).toContain('export const lockAcquired = silent')
  const measured = await bench.run('smoke', () => undefined)
  expectMeasured(measured)
  expect(measured.results).toHaveLength(6)
  expect(measured.goals.filter((goal) => goal.name.includes('ratio'))).toHaveLength(6)
  const counted = measured.goals.filter((goal) => goal.name.includes('counted'))
  expect(counted.map((goal) => goal.value)).toEqual([60, 60, 60])
  expect(counted.filter((goal) => !goal.holds)).toEqual([])
  const left = readdirSync(new URL('../.lockstep/', import.meta.url))
  expect(left.filter((name) => name.startsWith('bench-observe-'))).toEqual([])
})

test('bench hot-key runs every contender in every contest', TIMEOUT, async () => {
  const measured = await smoke('hot-key')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(7)
  expectLimits(measured, 3)
  for (const row of measured.results) {
    expect(row['baseline/s']).toBeGreaterThan(0)
    expect(row['combine/s']).toBeGreaterThan(0)
  }
  expect(measured.goals).toHaveLength(5)
})

test('bench leases measures every row and the limit, and a refusal writes nothing', TIMEOUT, async () => {
  const measured = await smoke('leases')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(7)
  expectLimits(measured, 1)
  expect(measured.goals.find((each) => each.name.startsWith('WAL'))).toMatchObject({ value: 0, holds: true })
})

test('bench outbox runs every contender, and Lockstep leaves no dead event', TIMEOUT, async () => {
  const measured = await smoke('outbox')
  expectMeasured(measured)
  const rowsWith = (column: string, isMeasured: (value: number) => boolean): number =>
    measured.results.filter((row) => typeof row[column] === 'number' && isMeasured(row[column])).length
  const onBundled = [
    rowsWith('enqueue/s', (rate) => rate > 0),
    rowsWith('drain/s', (rate) => rate > 0),
    // On a busy machine an event can be there before the answer to its COMMIT.
    rowsWith('p99 ms', Number.isFinite),
  ]
  const besides = pgqIsThere() ? 2 : 0
  expect(onBundled).toEqual([11 + (besides > 0 ? 4 : 0), 8 + (besides > 0 ? 3 : 0), 8 + (besides > 0 ? 3 : 0)])
  expectLimits(measured, besides > 0 ? 3 : 1)
  expect(measured.goals.find(({ name }) => name === 'dead tuples among the events')).toMatchObject({ value: 0 })
  // It updates each job when it is taken and when it is done.
  const dead = (who: string): unknown => measured.results.find((row) => row['who'] === who)?.['dead rows']
  expect(dead('pg-boss key_strict_fifo')).toBeGreaterThan(1.5)
  expect(dead('Lockstep')).toBeLessThan(0.1)
})

test('bench outbox-horizon runs with a snapshot, with a transaction id, and without both', TIMEOUT, async () => {
  const measured = await smoke('outbox-horizon')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(6)
  expect(measured.goals).toHaveLength(6)
})

test('bench outbox-scale compares every cell with the smallest one', TIMEOUT, async () => {
  const measured = await smoke('outbox-scale')
  expectMeasured(measured)
  expect(measured.results.map((row) => row['of the smallest'])).toContain(1)
  expect(measured.goals).toHaveLength(2)
})

test('bench growth measures every step of events, keys and processes', TIMEOUT, async () => {
  const measured = await smoke('growth')
  expectMeasured(measured)
  expect(measured.results.map((row) => [row['what grows'], row['to']])).toEqual([
    ['events', 10],
    ['events', 100],
    ['keys', 10],
    ['keys', 100],
    ['processes', 1],
    ['processes', 2],
  ])
  for (const row of measured.results) expect(row['drain µs']).toBeGreaterThan(0)
})

test(
  'bench outbox-topics drains with and without a filter, and passes events of unwanted topics',
  TIMEOUT,
  async () => {
    const measured = await smoke('outbox-topics')
    expectMeasured(measured)
    expect(measured.results).toHaveLength(4)
    expect(measured.goals).toHaveLength(3)
  },
)

test('bench outbox-latency receives every event, and counts the queries of an idle dispatcher', TIMEOUT, async () => {
  const measured = await smoke('outbox-latency')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(5)
  expectLimits(measured, 1)
  const [asked] = measured.goals.filter((goal) => goal.name.includes('questions'))
  expect(asked?.value).toBeGreaterThan(0)
})

test('bench idle counts messages, and wakes a dispatcher in two ways', TIMEOUT, async () => {
  const measured = await smoke('idle')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(9)
})

test('bench sinks measures every sink against its broker', TIMEOUT, async () => {
  const measured = await smoke('sinks')
  expectMeasured(measured)
  expect(measured.results.map(({ sink }) => sink)).toEqual([
    'redis',
    'nats',
    'kafka',
    'rabbitmq',
    'webhook',
    'postgres',
  ])
})

test('bench consumers handles a backlog with every contender, in order', TIMEOUT, async () => {
  const measured = await smoke('consumers')
  expectMeasured(measured)
  expect(measured.results).toHaveLength(6)
  for (const row of measured.results) expect(row['handled/s']).toBeGreaterThan(0)
  expect(measured.goals.find(({ name }) => name.startsWith('effects'))).toMatchObject({ value: 0, holds: true })
})

test('bench processes divides the shards among all processes', TIMEOUT, async () => {
  const measured = await smoke('processes')
  expectMeasured(measured)
  expect(measured.results.map((row) => row['processes'])).toEqual([1, 2, 4, 1, 2, 4])
  const drains = measured.results.filter(({ what }) => what === 'drain, events/s')
  for (const row of drains) expect(row['least share']).toBeGreaterThan(0)
})

test(
  'bench cost measures the costs, and compares a load with what the command predicts from them',
  TIMEOUT,
  async () => {
    const measured = await smoke('cost')
    expectMeasured(measured)
    expect(measured.results).toHaveLength(11)
    expect(measured.goals).toHaveLength(6)
    for (const { predicted } of measured.results.slice(5)) expect(predicted).toBeGreaterThan(0)
  },
)

const previous = previousRelease()

test.skipIf(previous === undefined)('bench against runs every row with both libraries', TIMEOUT, async () => {
  const measured = await against(previous?.commit ?? '').run('smoke', () => undefined)
  expectMeasured(measured)
  expect(measured.results).toHaveLength(12)
  for (const row of measured.results) expect(row['new/old']).toBeGreaterThan(0)
  expect(measured.goals).toHaveLength(12)
})
