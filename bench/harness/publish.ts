import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ResultRow } from '../../tools/judge/report.ts'
import { type Bar, barChart, type Chart, show } from './barChart.ts'
import { limitRows } from './limits.ts'
import { type LineChart, lineChart } from './lineChart.ts'
import type { BenchRecord, RunRecord } from './record.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const PICTURES = join(ROOT, 'docs', 'pictures')
const GUIDE = join(ROOT, 'docs', 'guides', 'benchmarks.md')

interface Published {
  /** The record with what other benches gave on that day: the table of limits has all of them. */
  readonly ofTheDay?: RunRecord
  readonly folder?: string
  readonly guide?: string
}

/** Draws the charts of a run and fills in the tables of the guide. Gives the paths of what was written. */
export function publish(
  record: RunRecord,
  { ofTheDay = record, folder = PICTURES, guide = GUIDE }: Published = {},
): string[] {
  const written: string[] = []
  for (const [name, picture] of picturesOf(record)) {
    const path = join(folder, `bench-${name}.svg`)
    writeFileSync(path, picture.svg())
    written.push(path)
  }
  if (existsSync(guide)) {
    writeFileSync(guide, fillIn(readFileSync(guide, 'utf8'), record, ofTheDay))
    written.push(guide)
  }
  return written
}

/** A chart, and the bench in whose section it stands. */
interface ChartOf extends Chart {
  readonly bench: string
}

/** A chart for each claim that is best seen; those of benches that were not run are left as they are. */
export function chartsOf({ benches, machine, date }: RunRecord): Record<string, ChartOf> {
  const rowsOf = (name: string): readonly ResultRow[] => benches.find((bench) => bench.name === name)?.results ?? []
  const where = `${machine.cores} x ${machine.processor}, ${date.slice(0, 10)}`
  const charts: Record<string, ChartOf> = {
    'outbox-drain': {
      bench: 'outbox',
      title: 'Draining an outbox of 1,000 keys to a sink that counts',
      subtitle: `events a second, median; ${where}`,
      bars: barsOf(rowsOf('outbox'), 'who', 'drain/s'),
    },
    'outbox-enqueue': {
      bench: 'outbox',
      title: 'Enqueuing one event in a transaction, 8 connections',
      subtitle: `events a second, median, every commit on disk; ${where}`,
      bars: barsOf(rowsOf('outbox'), 'who', 'enqueue/s'),
    },
    'outbox-horizon': {
      bench: 'outbox-horizon',
      title: 'Draining while a session holds an old snapshot',
      subtitle: `rate in the rate without it: 1 is unharmed; ${where}`,
      bars: barsOf(
        rowsOf('outbox-horizon').filter(({ what }) => what === 'drain'),
        'who',
        'ratio',
      ),
    },
    'hot-key': {
      bench: 'hot-key',
      title: 'Transfers to one hot account, 64 callers',
      subtitle: `a second, median, every commit on disk; ${where}`,
      bars: rowsOf('hot-key')
        .filter(({ contest }) => String(contest).startsWith('one hot account'))
        .flatMap(({ contest, against, ...row }) => {
          const setting = String(contest).replace(/^.*, /, '')
          const other = { label: `${against}, ${setting}`, value: Number(row['baseline/s']), ours: false }
          // Against the limit it has a second rate of its own: one bar is enough.
          return against === 'the limit'
            ? [other]
            : [{ label: `combine, ${setting}`, value: Number(row['combine/s']), ours: true }, other]
        }),
    },
    'lease-hand-off': {
      bench: 'leases',
      title: 'From one holder’s release to the next one’s code, 64 contenders',
      subtitle: `p99 in milliseconds, less is better; ${where}`,
      bars: rowsOf('leases')
        .filter(({ what }) => String(what).startsWith('hand-off p99'))
        .flatMap(({ lockstep, beside, of }) => [
          { label: 'Lockstep', value: Number(lockstep), ours: true },
          { label: String(of), value: Number(beside), ours: false },
        ]),
    },
  }
  return Object.fromEntries(Object.entries(charts).filter(([, { bars }]) => bars.length > 0))
}

/** What growth costs, for each of the things that grow. */
export function linesOf({ benches, machine, date }: RunRecord): Record<string, LineChart> {
  const rows = benches.find(({ name }) => name === 'growth')?.results ?? []
  const where = `${machine.cores} x ${machine.processor}, ${date.slice(0, 10)}`
  const chart = (grows: string, title: string, base: number): LineChart => {
    const own = rows.filter((row) => row['what grows'] === grows)
    const line = (column: string): (readonly [number, number])[] =>
      own
        .filter((row) => typeof row[column] === 'number')
        .map((row) => [Number(row['to']), Number(row[column])] as const)
    return {
      title,
      subtitle: `µs for each, median; ${where}`,
      along: grows,
      base,
      lines: ['enqueue', 'drain', 'hand-off']
        .map((label) => ({ label, points: line(`${label} µs`) }))
        .filter(({ points }) => points.length > 0),
    }
  }
  const charts = {
    'growth-events': chart('events', 'Cost of an event, with 10 to 10,000,000 events', 10),
    'growth-keys': chart('keys', 'Cost of an event, with 10 to 1,000,000 keys', 10),
    'growth-processes': chart('processes', 'Cost of an event and of a hand-off, with 1 to 64 processes', 2),
  }
  return Object.fromEntries(Object.entries(charts).filter(([, { lines }]) => lines.length > 0))
}

interface Picture {
  readonly bench: string
  readonly title: string
  svg(): string
}

function picturesOf(record: RunRecord): [name: string, Picture][] {
  return [
    ...Object.entries(chartsOf(record)).map(([name, chart]): [string, Picture] => [
      name,
      { bench: chart.bench, title: chart.title, svg: () => barChart(chart) },
    ]),
    ...Object.entries(linesOf(record)).map(([name, chart]): [string, Picture] => [
      name,
      { bench: 'growth', title: chart.title, svg: () => lineChart(chart) },
    ]),
  ]
}

/** Where a row stands on another server than the first, the label says so. */
function barsOf(rows: readonly ResultRow[], label: string, value: string): Bar[] {
  const usual = rows[0]?.['PostgreSQL']
  return rows
    .filter((row) => typeof row[value] === 'number')
    .map((row) => ({
      label: row['PostgreSQL'] === usual ? String(row[label]) : `${row[label]}, PostgreSQL ${row['PostgreSQL']}`,
      value: Number(row[value]),
      ours: /^lockstep/i.test(String(row[label])),
    }))
}

/** Puts the tables between their marks: `<!-- results:outbox -->` and `<!-- /results:outbox -->`. */
export function fillIn(page: string, record: RunRecord, ofTheDay = record): string {
  const texts: Record<string, string> = {
    run: `Last run on ${record.date.slice(0, 10)}: ${record.machine.text}; load before it ${record.machine.loadBefore}.`,
  }
  const charts = picturesOf(record)
  for (const bench of record.benches) {
    const own = charts.filter(([, picture]) => picture.bench === bench.name)
    const pictures = own.map(([name, { title }]) => `![${title}](../pictures/bench-${name}.svg)\n\n`)
    texts[bench.name] = pictures.join('') + sectionOf(bench, record.date.slice(0, 10))
  }
  const limits = limitRows(ofTheDay.benches)
  if (limits.length > 0) texts['limits'] = `${tableOf(limits)}\n\nRun on ${record.date.slice(0, 10)}.`
  return Object.entries(texts).reduce(
    (text, [name, content]) =>
      text.replace(
        new RegExp(`(<!-- results:${name} -->\\n)[\\s\\S]*?(<!-- /results:${name} -->)`),
        (_, from: string, to: string) => `${from}${content}\n${to}`,
      ),
    page,
  )
}

/** With its own date: a later run can have replaced some of the tables. */
function sectionOf({ results, goals, seconds }: BenchRecord, date: string): string {
  const judged = goals.map(({ name, value, goal, holds }) => ({
    goal: name,
    value,
    wanted: goal,
    '': holds ? 'holds' : '**does not hold**',
  }))
  return `${tableOf(results)}\n\n${tableOf(judged)}\n\nRun on ${date}. It took ${Math.round(seconds)} s.`
}

function tableOf(rows: readonly ResultRow[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))]
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  const cell = (value: string | number | undefined): string =>
    value === undefined ? '' : typeof value === 'number' ? show(value) : value.replaceAll('|', '\\|')
  return [
    line(columns),
    `|${columns.map(() => '---').join('|')}|`,
    ...rows.map((row) => line(columns.map((column) => cell(row[column])))),
  ].join('\n')
}
