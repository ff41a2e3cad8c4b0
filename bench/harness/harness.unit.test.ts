import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { ResultRow } from '../../tools/judge/report.ts'
import { barChart, show } from './barChart.ts'
import { interleave } from './interleave.ts'
import { limitRows } from './limits.ts'
import { medianInterval } from './medianInterval.ts'
import { lineChart } from './lineChart.ts'
import { barOf } from './progressBar.ts'
import { chartsOf, fillIn, linesOf, publish } from './publish.ts'
import { type BenchRecord, keepRecord, type RunRecord } from './record.ts'
import { quantile, showSpread, spreadOf } from './spread.ts'

test('computes the median and the middle half of samples', () => {
  expect(spreadOf([5, 1, 4, 2, 3])).toMatchObject({ median: 3, low: 2, high: 4 })
  expect(quantile([1, 2], 0.5)).toBe(1.5)
  expect(quantile([1, Infinity], 1)).toBe(Infinity)
  expect(quantile([Infinity, Infinity], 0.5)).toBe(Infinity)
  expect(showSpread(spreadOf([0.9871, 0.9872]))).toBe('0.987 to 0.987')
})

test('bounds the median by the samples that the binomial distribution gives', () => {
  const upTo = (count: number): number[] => Array.from({ length: count }, (_, place) => place + 1)
  // As in tables of the sign test.
  expect(medianInterval(upTo(6))).toEqual({ low: 1, high: 6 })
  expect(medianInterval(upTo(9))).toEqual({ low: 2, high: 8 })
  expect(medianInterval(upTo(20))).toEqual({ low: 6, high: 15 })
  expect(medianInterval(upTo(60))).toEqual({ low: 22, high: 39 })
  expect(medianInterval([3, 1])).toEqual({ low: 1, high: 3 })
})

test('runs contenders in turn, rotates who begins, and drops the first round', async () => {
  const order: string[] = []
  const play = (name: string, value: number) => (round: number) => {
    order.push(`${name}${round}`)
    return Promise.resolve({ us: round === 0 ? 1000 : value * round })
  }
  const rounds = await interleave({ a: play('a', 2), b: play('b', 1), c: play('c', 4) }, 3, () => undefined)
  expect(order).toEqual(['a0', 'b0', 'c0', 'b1', 'c1', 'a1', 'c2', 'a2', 'b2', 'a3', 'b3', 'c3'])
  expect(rounds.of('a', 'us').samples).toEqual([2, 4, 6])
  expect(rounds.ratio('c', 'b', 'us').samples).toEqual([4, 4, 4])
})

test('groups digits of large numbers, and keeps three digits of small ones', () => {
  expect([141_710.4, 999.5, 12.345, 0.8712, 1_000_000].map(show)).toEqual([
    '141,710',
    '1,000',
    '12.3',
    '0.871',
    '1,000,000',
  ])
})

test('draws a bar as long as its share', () => {
  expect(barOf(0)).toBe(`[${' '.repeat(24)}]`)
  expect(barOf(0.5)).toBe(`[${'='.repeat(12)}${' '.repeat(12)}]`)
})

const RECORD: RunRecord = {
  date: '2026-01-02T03:04:05.000Z',
  thoroughness: 'full',
  machine: {
    text: 'a machine',
    processor: 'A & B',
    cores: 2,
    memoryGiB: 24,
    system: 'linux',
    node: '20',
    loadBefore: 0.1,
    peers: {},
  },
  benches: [
    {
      name: 'outbox',
      seconds: 12.4,
      results: [
        { who: 'Lockstep', PostgreSQL: '18', 'enqueue/s': 4000, 'drain/s': 140_000 },
        { who: 'plain INSERT', PostgreSQL: '18', 'enqueue/s': 5000 },
        { who: 'PgQ', PostgreSQL: '15', 'enqueue/s': 5000, 'drain/s': 70_000 },
      ],
      goals: [{ name: 'drain: times PgQ', value: 2, goal: '>= 0.8', holds: true }],
    },
  ],
}

test('draws one bar per measurement, in proportion, and escapes text', () => {
  const { 'outbox-drain': drain, 'outbox-enqueue': enqueue, 'hot-key': hotKey } = chartsOf(RECORD)
  expect(drain?.bars.map(({ label }) => label)).toEqual(['Lockstep', 'PgQ, PostgreSQL 15'])
  expect(enqueue?.bars).toHaveLength(3)
  expect(hotKey).toBeUndefined()
  const svg = barChart(drain ?? { title: '', subtitle: '', bars: [] })
  expect([...svg.matchAll(/<rect[^>]* width="(\d+)"/g)].map((match) => Number(match[1]))).toEqual([370, 185])
  expect(svg).toContain('A &amp; B')
  expect(svg).toContain('prefers-color-scheme: dark')
})

test('draws a line for each cost, on logarithmic axes', () => {
  const row = (to: number, enqueue: number): ResultRow => ({
    'what grows': 'events',
    to,
    'enqueue µs': enqueue,
    'hand-off µs': '',
  })
  const bench = { name: 'growth', seconds: 1, goals: [], results: [row(10, 100), row(1000, 100), row(100_000, 1000)] }
  const { 'growth-events': chart, ...others } = linesOf({ ...RECORD, benches: [bench] })
  expect(others).toEqual({})
  expect(chart?.lines.map(({ label }) => label)).toEqual(['enqueue'])
  const svg = lineChart(chart ?? { title: '', subtitle: '', along: '', base: 10, lines: [] })
  const [places] = [...svg.matchAll(/points="([^"]+)"/g)].map(([, points]) =>
    points?.split(' ').map((each) => each.split(',')),
  )
  // As far from the first to the second as from there to the third; level, then from the bottom to the top.
  expect(places).toEqual([
    ['70', '330'],
    ['340', '330'],
    ['610', '70'],
  ])
  expect(svg).toContain('A &amp; B')
})

const LIMITED: BenchRecord = {
  name: 'leases',
  seconds: 1,
  results: [],
  goals: [],
  limits: [
    {
      what: 'a lease',
      unit: 'µs',
      lockstep: 660,
      limit: 600,
      program: 'two messages, one flush',
      goal: { name: 'a lease, in the limit', value: 1.1, goal: '<= 1.1', holds: true },
    },
  ],
}

test('puts goals and their limits in one table, with those of other runs of the day', () => {
  expect(limitRows([...RECORD.benches, LIMITED])).toEqual([
    expect.objectContaining({ bench: 'leases', Lockstep: 660, limit: 600, wanted: '<= 1.1', '': 'holds' }),
  ])
  const page = '<!-- results:limits -->\nNot recorded yet.\n<!-- /results:limits -->\n'
  expect(fillIn(page, RECORD)).toBe(page)
  const filled = fillIn(page, RECORD, { ...RECORD, benches: [...RECORD.benches, LIMITED] })
  expect(filled).toContain('| leases | a lease | µs | 660 | 600 | two messages, one flush |')
})

test('writes a record under its date, draws it, and inserts it between the marks of the guide', () => {
  const folder = mkdtempSync(join(tmpdir(), 'lockstep-bench-'))
  try {
    const kept = keepRecord(RECORD, folder)
    expect(kept).toBe(join(folder, '2026-01-02.json'))
    expect(JSON.parse(readFileSync(kept, 'utf8'))).toEqual(RECORD)
    const another = { ...(RECORD.benches[0] as BenchRecord), name: 'another' }
    keepRecord({ ...RECORD, benches: [another] }, folder)
    keepRecord(RECORD, folder)
    expect(JSON.parse(readFileSync(kept, 'utf8'))).toEqual({ ...RECORD, benches: [another, ...RECORD.benches] })
    const guide = join(folder, 'guide.md')
    writeFileSync(guide, 'before\n<!-- results:outbox -->\nstale\n<!-- /results:outbox -->\nafter\n')
    expect(publish(RECORD, { folder, guide })).toHaveLength(3)
    const page = readFileSync(guide, 'utf8')
    expect(page).toContain('| Lockstep | 18 | 4,000 | 140,000 |')
    expect(page).toContain('Run on 2026-01-02.')
    expect(page).not.toContain('stale')
    expect(page).toContain('](../pictures/bench-outbox-drain.svg)')
    expect(page.endsWith('after\n')).toBe(true)
    expect(fillIn(page, RECORD)).toBe(page)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
