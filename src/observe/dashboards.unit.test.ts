import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as client from 'prom-client'
import { describe, expect, test } from 'vitest'
import { askedOf, seriesOfLibrary } from '../../tools/promql.ts'
import { findPromtool } from '../../tools/promtool.ts'
import { type EventMessage, type EventName, events } from './events.ts'
import { lockstepMetrics } from './prometheus.ts'

const folder = fileURLToPath(new URL('../../docs/operating/dashboards/', import.meta.url))

interface Panel {
  readonly title: string
  readonly type: string
  readonly description?: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[]
}

interface Dashboard {
  readonly uid: string
  readonly templating: { readonly list: readonly { readonly name: string }[] }
  readonly panels: readonly Panel[]
}

const dashboards = readdirSync(folder).map((file) => ({
  file,
  ...(JSON.parse(readFileSync(folder + file, 'utf8')) as Dashboard),
}))
const queries = dashboards.flatMap(({ file, panels }) =>
  panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => ({ where: `${file}: ${title}`, expr, legendFormat })),
  ),
)
const series = await seriesOfLibrary()

describe('docs/operating/dashboards', () => {
  test('has a dashboard of locks and leases and one of the outbox, with a description of each panel', () => {
    expect(dashboards.map(({ file }) => file).toSorted()).toEqual(['locks-and-leases.json', 'outbox.json'])
    expect(new Set(dashboards.map(({ uid }) => uid)).size).toBe(dashboards.length)
    for (const { title, type, description, targets } of dashboards.flatMap(({ panels }) => panels)) {
      if (type === 'row') continue
      expect(description, title).toMatch(/\.$/)
      expect(targets?.length, title).toBeGreaterThan(0)
    }
  })

  test('shows no panel over another', () => {
    for (const { file, panels } of dashboards) {
      const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
        Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)},${y + Math.floor(cell / w)}`),
      )
      expect(new Set(cells).size, file).toBe(cells.length)
    }
  })

  test('queries only metrics, labels and variables that exist', () => {
    expect(queries.length).toBeGreaterThan(40)
    for (const { where, expr, legendFormat } of queries) {
      const asked = askedOf(expr)
      expect(asked.length, where).toBeGreaterThan(0)
      for (const { name, labels } of asked) {
        expect([...series.keys()], where).toContain(name)
        expect(series.get(name), `${where}: ${name}`).toEqual(expect.arrayContaining([...labels]))
      }
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label)
      const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, labels = '']) => labels.split(', '))
      expect(grouped, where).toEqual(expect.arrayContaining(shown))
    }
    for (const { file, templating, panels } of dashboards) {
      const known = ['__rate_interval', ...templating.list.map(({ name }) => name)]
      const used = [...JSON.stringify(panels).matchAll(/\$\{?(\w+)/g)].map(([, name = '']) => name)
      expect(known, file).toEqual(expect.arrayContaining([...new Set(used)]))
    }
  })

  test('shows every metric of the library', () => {
    const shown = new Set(queries.flatMap(({ expr }) => askedOf(expr)).map(({ name }) => baseOf(name)))
    const missing = new Set([...series.keys()].map(baseOf).filter((name) => !shown.has(name)))
    // The calls of a batch wait for its lock: that wait is shown.
    expect([...missing]).toEqual(['lockstep_combine_wait_seconds'])
  })
})

function baseOf(name: string): string {
  return name.replace(/_(?:bucket|sum|count)$/, '')
}

function publish<Name extends EventName>(name: Name, message: EventMessage<Name>): void {
  const channel = events[name] as { publish(message: EventMessage<Name>): void }
  channel.publish(message)
}

/** One of everything that moves a metric. */
function publishEverything(): void {
  const schema = 'lockstep'
  const order = { schema, keys: ['Order:1'], sharedKeys: [] }
  const lease = { schema, key: 'Instance:1', holder: 'here', fence: 7n }
  publish('lock.acquired', { ...order, waitMs: 20, contended: true, attempt: 1 })
  publish('lock.released', { ...order, holdMs: 30, outcome: 'committed' })
  publish('lock.contended', { ...order, where: 'server' })
  publish('lock.timedOut', { ...order, noWait: false, waitedMs: 100, waitedFor: 'server', holders: [] })
  publish('lock.timedOut', { ...order, noWait: true, waitedMs: 1, waitedFor: 'server', holders: [] })
  publish('lock.refused', { ...order, waiting: 1 })
  publish('lock.abandoned', { ...order, waitedMs: 100 })
  publish('lock.slow', { ...order, waitedMs: 100, waitedFor: 'server', holders: [] })
  publish('lock.wouldWait', { schema, key: 'Order:1', waitMs: 500, granted: true })
  const retried = { schema, keys: ['Order:1'], attempt: 1, delayMs: 5, error: undefined }
  publish('transaction.retried', { ...retried, reason: '40001' })
  publish('commit.resolved', { schema, keys: ['Order:1'], xid: '7', outcome: 'unknown', tookMs: 3 })
  publish('rollout.switchedBack', { schema, prefix: 'Order:', trigger: 'waitMs', reason: 'slow' })
  publish('rollout.duplicateFound', { schema, key: 'Order:1', mode: 'on', detail: '' })
  const batch = { schema, key: 'Order:1', size: 3, waiting: 0, waitedMs: 10, tookMs: 20 }
  publish('combine.batch', { ...batch, outcome: 'committed' })
  publish('combine.refused', { schema, key: 'Order:1', waiting: 9 })
  publish('lease.acquired', { ...lease, waitedMs: 10 })
  publish('lease.refused', { ...lease, heldBy: 'there', leftMs: 10, waits: true })
  publish('lease.slow', { ...lease, waitedMs: 100, heldBy: 'there' })
  publish('lease.wouldWait', { ...lease, heldBy: 'there', waitMs: 10, granted: false })
  publish('lease.unreachable', { ...lease, error: new Error('away') })
  publish('lease.renewed', { ...lease, outcome: 'unknown' })
  publish('lease.lost', { ...lease, heldMs: 10, reason: 'taken away' })
  const dispatcher = { schema, dispatcher: 'default' }
  const stream = { ...dispatcher, topic: 'trades', key: '42' }
  publish('outbox.shardTaken', { ...dispatcher, shard: 0, fence: 1n })
  const event = { topic: 'trades', key: '42', seq: 1, enqueuedAt: new Date(), headers: {} }
  publish('outbox.delivered', { ...dispatcher, shard: 0, events: [event], tookMs: 5 })
  publish('outbox.parked', { ...stream, seq: 3, attempts: 2, reason: 'refused', state: 'blocked' })
  publish('outbox.unparked', stream)
  publish('outbox.sinkDown', { ...dispatcher, sink: 'kafka', reason: 'refused' })
  publish('outbox.failed', { ...dispatcher, error: new Error('away') })
  const consumer = { schema: dispatcher.schema, consumer: 'billing', source: 'redis' }
  publish('consumer.applied', {
    ...consumer,
    events: [{ topic: 'trades', key: 'ann', seq: 1, enqueuedAt: new Date(), headers: {} }],
    tookMs: 5,
  })
  const refused = { topic: 'trades', key: 'ann', seq: 2, attempts: 1, reason: 'Ann is unknown' }
  publish('consumer.stopped', { ...consumer, ...refused, kind: 'failed' })
  publish('consumer.failed', { ...consumer, error: new Error('away') })
}

const MINUTES = 10

/** What Prometheus scrapes of a process in which everything happens once a minute: each series with its values. */
async function recordSamples(): Promise<{ readonly series: string; readonly values: string }[]> {
  const register = new client.Registry()
  const shards = [{ dispatcher: 'default', lagEvents: 3, lagMs: 5000, parkedStreams: 1 }]
  const guarded = { table: 'public.accounts', key: 'Account:{id}', state: 'active', unlocked: 2, listed: 1, refused: 0 }
  const stop = lockstepMetrics(client, {
    register,
    outbox: { status: () => Promise.resolve({ shards }) },
    guards: { list: () => Promise.resolve([guarded]) },
  })
  const values = new Map<string, string[]>()
  for (let minute = 0; minute <= MINUTES; minute++) {
    publishEverything()
    for (const line of (await register.metrics()).split('\n')) {
      const [, name, value] = /^(lockstep_\w+\{.*\}) (\S+)$/.exec(line) ?? []
      if (name === undefined || value === undefined) continue
      const past = values.get(name) ?? Array.from({ length: minute }, () => '_')
      values.set(name, [...past, value])
    }
  }
  stop()
  return [...values].map(([name, seen]) => ({ series: name, values: seen.join(' ') }))
}

const promtool = findPromtool()
if (promtool === undefined && process.env['CI'] === 'true')
  throw new Error('There is no promtool, and CI=true allows no skipped tests.')

test.skipIf(promtool === undefined)('promtool: every query gives something on recorded samples', async () => {
  const plain = (expr: string): string =>
    expr.replaceAll('$__rate_interval', '5m').replaceAll(/"\$(?:operation|dispatcher)"/g, '".*"')
  const checks = queries.map(({ expr }) => ({
    // Of a query that gives nothing there is no count.
    expr: `count(${plain(expr)}) > bool 0`,
    eval_time: `${MINUTES}m`,
    exp_samples: [{ labels: '{}', value: 1 }],
  }))
  const tests = [{ interval: '1m', input_series: await recordSamples(), promql_expr_test: checks }]
  const directory = mkdtempSync(join(tmpdir(), 'lockstep-dashboards-'))
  // JSON is YAML.
  const file = join(directory, 'dashboards.yml')
  writeFileSync(file, JSON.stringify({ rule_files: [], evaluation_interval: '1m', tests }))
  const { status, stdout, stderr } = spawnSync(promtool as string, ['test', 'rules', file], { encoding: 'utf8' })
  rmSync(directory, { recursive: true })
  expect({ status, said: status === 0 ? '' : stdout + stderr }).toEqual({ status: 0, said: '' })
})
