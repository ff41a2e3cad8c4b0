import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { CAPACITY_COSTS } from '../../tools/server/testing/capacityCosts.ts'
import { shapeFaults } from '../../tools/server/testing/cliShapes.ts'
import type { CapacityCosts } from './capacityCosts.ts'
import { BUSY_AT_MOST, capacityOf, CONNECTIONS_AT_MOST, type Load, type Resource, systemOf } from './capacityModel.ts'
import { type Simulated, simulate } from './capacitySimulation.ts'
import { parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'

const costs: CapacityCosts = CAPACITY_COSTS

const load: Load = {
  eventsPerS: 1000,
  keys: 1000,
  processes: 4,
  payloadBytes: 100,
  leasesPerS: 0,
  transactionsPerS: 0,
  sinkPerS: 10_000,
  cores: undefined,
}

function simulated(given: Partial<Load>): Simulated {
  const whole = { ...load, ...given }
  return simulate(systemOf(whole, capacityOf(whole, costs), costs))
}

describe('the capacity of a load', () => {
  test('is the sum of what its parts cost', () => {
    const capacity = capacityOf({ ...load, payloadBytes: 200, leasesPerS: 100, transactionsPerS: 2000 }, costs)
    const commits = (1000 * (200 + 2) + 100 * 400 + 2000 * 150) / 1e6
    // Each event is found by a look of its own; four processes, and twelve rows that each of them reads in 1.5 s.
    const delivery = (1000 * (5 + 1) + 1000 * 100) / 1e6
    const upkeep = (4 * 1000 + (4 / 1.5) * (4 + 8) * 0.5) / 1e6
    expect(capacity.busyWith.commits).toBeCloseTo(commits)
    expect(capacity.busyWith.delivery).toBeCloseTo(delivery)
    expect(capacity.busyWith.upkeep).toBeCloseTo(upkeep)
    expect(capacity.busyCores).toBeCloseTo(commits + delivery + upkeep)
    expect(capacity.walBytesPerS).toBeCloseTo(1000 * (700 + 1 + 50) + 100 * 700 + 2000 * 250 + 4 * 10)
    expect(capacity.diskBytesPerDay).toBeCloseTo(1000 * 500 * 86_400)
    expect(capacity).toMatchObject({ databaseCores: 2, shards: 8, databases: 1, fits: true })
  })

  test('has no outbox in it where there are no events', () => {
    const capacity = capacityOf({ ...load, eventsPerS: 0, leasesPerS: 10 }, costs)
    expect(capacity).toMatchObject({ busyWith: { delivery: 0, upkeep: 0 }, diskBytesPerDay: 0, walBytesPerS: 7000 })
    expect(capacity.limits.filter(({ times }) => times === Infinity).map(({ resource }) => resource)).toEqual([
      'one key',
      'delivery',
    ])
  })

  test.each<[Resource, Partial<Load>]>([
    ['database CPU', { eventsPerS: 2000, cores: 1 }],
    ['one key', { eventsPerS: 2000, keys: 1 }],
    ['delivery', { processes: 1, sinkPerS: 500 }],
    ['connections', { processes: 200 }],
  ])('has the first bottleneck where it is: %s', (resource, given) => {
    const { limits, fits } = capacityOf({ ...load, ...given }, costs)
    expect(limits[0]?.resource).toBe(resource)
    expect(limits[0]?.times).toBeLessThan(1)
    expect(fits).toBe(false)
  })

  test('reaches each limit at the load that it says', () => {
    const mixed = { ...load, processes: 20, leasesPerS: 50, cores: 8 }
    for (const { resource, times } of capacityOf(mixed, costs).limits) {
      const used = (factor: number): number =>
        capacityOf({ ...mixed, eventsPerS: 1000 * times * factor, leasesPerS: 50 * times * factor }, costs).limits.find(
          (each) => each.resource === resource,
        )?.used ?? Number.NaN
      expect(used(0.99), resource).toBeLessThanOrEqual(1)
      expect(used(1.01), resource).toBeGreaterThan(1)
    }
  })

  test('needs more shards for slow sinks, and more databases than one for what no server has', () => {
    expect(capacityOf({ ...load, eventsPerS: 20_000, sinkPerS: 1000, processes: 100 }, costs).shards).toBe(64)
    const large = capacityOf({ ...load, eventsPerS: 400_000, keys: 1_000_000, processes: 80 }, costs)
    expect(large).toMatchObject({ databaseCores: 64, fits: false })
    expect(large.databases).toBe(Math.ceil(Math.ceil(large.busyCores / BUSY_AT_MOST) / 64))
    expect(large.databases).toBeGreaterThan(2)
  })

  test('grows with the square of the processes that look for each other', () => {
    const upkeep = (processes: number): number => capacityOf({ ...load, processes }, costs).busyWith.upkeep
    expect(upkeep(1000) / upkeep(100)).toBeGreaterThan(12)
    const { connections, limits } = capacityOf({ ...load, processes: 1000 }, costs)
    expect(connections).toBeGreaterThan(CONNECTIONS_AT_MOST)
    expect(limits[0]).toMatchObject({ resource: 'connections', times: 0 })
  })
})

describe('the simulation', () => {
  test('has one answer for one load', () => {
    expect(simulated({})).toEqual(simulated({}))
  })

  test.each([
    [1, 100],
    [10, 1000],
    [100, 10_000],
    [1000, 100_000],
  ])('of %i processes and %i events/s is as busy as the sum, and keeps up', (processes, eventsPerS) => {
    const whole = { ...load, processes, eventsPerS, keys: 100_000, leasesPerS: eventsPerS / 10 }
    const capacity = capacityOf(whole, costs)
    const { busy, overloaded, commitMs, deliveryMs } = simulate(systemOf(whole, capacity, costs))
    const sum = capacity.busyCores / capacity.databaseCores
    expect(overloaded).toBe(false)
    // Where a look finds several events, there are fewer looks than the sum has.
    expect(busy / sum).toBeGreaterThan(0.8)
    expect(busy / sum).toBeLessThan(1.07)
    // A commit waits for its own flush, and for the one before it at most.
    expect(commitMs.p50).toBeGreaterThan(costs.clientMs + costs.flushMs)
    expect(commitMs.p50).toBeLessThan(costs.clientMs + 3 * costs.flushMs + 1)
    expect(deliveryMs.p50).toBeGreaterThan(costs.look.waitMs)
    expect(deliveryMs.p99).toBeLessThan(50)
  })

  test.each<[Resource, Partial<Load>, below: number, above: number]>([
    // The limit has room for queues: all processors are busy at 1 / 0.6 of it, and somewhat above, where a look finds several events.
    ['database CPU', { cores: 1, keys: 100_000, processes: 20 }, 1, 2.6],
    ['one key', { keys: 1, processes: 20, cores: 8 }, 0.75, 1.5],
    ['delivery', { processes: 1, sinkPerS: 500, cores: 8 }, 0.85, 1.25],
  ])('keeps up below the limit, and not above it: %s', (resource, given, below, above) => {
    const { limits } = capacityOf({ ...load, ...given }, costs)
    const times = limits.find((each) => each.resource === resource)?.times ?? Number.NaN
    expect(simulated({ ...given, eventsPerS: load.eventsPerS * times * below }).overloaded).toBe(false)
    expect(simulated({ ...given, eventsPerS: load.eventsPerS * times * above }).overloaded).toBe(true)
  })

  test('shares flushes among commits', () => {
    const { flushesPerS } = simulated({ eventsPerS: 20_000, keys: 100_000, processes: 40 })
    expect(flushesPerS).toBeLessThanOrEqual(1000 / costs.flushMs)
    expect(flushesPerS).toBeGreaterThan(0.9 * (1000 / costs.flushMs))
  })
})

describe('the command', () => {
  const folder = mkdtempSync(join(tmpdir(), 'lockstep-capacity-'))
  const file = join(folder, 'costs.json')
  writeFileSync(file, JSON.stringify(costs))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  async function run(line: string): Promise<{ json: Record<string, unknown>; text: string }> {
    const { command, call } = parseCommandLine(['capacity', ...line.split(' ')], commands)
    const outcome = await command!.run(call)
    const text = outcome.text({ columns: Infinity, rows: Infinity, paint: (_, plain) => plain })
    return { json: JSON.parse(JSON.stringify(outcome.json)) as Record<string, unknown>, text }
  }

  test.each([
    '--events-per-s 2000',
    '--leases-per-s 10',
    '--transactions-per-s 10',
    '--events-per-s 400000 --processes 1000 --cores 4',
  ])('answers with the documented shape: %s', async (line) => {
    expect(shapeFaults((await run(`${line} --costs ${file}`)).json)).toBeUndefined()
  })

  test('says what is needed, what the first bottleneck is, and whose costs these are', async () => {
    const { text } = await run(`--events-per-s 2000 --keys 1 --costs ${file}`)
    expect(text).toContain('For 2000 events/s of 250 bytes over 1 key, in 2 processes:')
    expect(text).toContain('It does not fit: one key. Events of one key are committed one after the other.')
    expect(text).toContain('Costs of 2026-11-18: a machine, PostgreSQL 18.4, `by hand`.')
  })

  test.each([
    ['--keys 10', 'No load was given.'],
    ['--events-per-s many', '--events-per-s cannot be "many".'],
    ['--events-per-s 10 --processes 0', '--processes cannot be "0".'],
    ['--events-per-s 10', 'No costs were given.'],
    ['--events-per-s 10 --costs no-such-file', 'The costs cannot be read from no-such-file'],
  ])('rejects %s', async (line, message) => {
    await expect(run(line)).rejects.toThrow(message)
  })

  test('calculates with the costs of the file, and says which one is missing', async () => {
    const other = join(folder, 'other.json')
    writeFileSync(other, JSON.stringify({ ...costs, event: { ...costs.event, cpuUs: 20_000 } }))
    expect((await run(`--events-per-s 100 --costs ${other}`)).json).toMatchObject({
      busyWith: { commits: 2 },
      costs: { machine: 'a machine' },
    })
    writeFileSync(other, JSON.stringify({ ...costs, look: { cpuUs: 1, walBytes: 1 } }))
    await expect(run(`--events-per-s 100 --costs ${other}`)).rejects.toThrow(`${other} has no look.waitMs.`)
    writeFileSync(other, JSON.stringify({ ...costs, flushMs: -1 }))
    await expect(run(`--events-per-s 100 --costs ${other}`)).rejects.toThrow(`${other} has no flushMs.`)
  })
})
