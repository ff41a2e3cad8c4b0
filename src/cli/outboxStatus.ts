import type { Lockstep, OutboxStatus, SegmentStatus, ShardStatus } from '../index.ts'
import type { Call, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { refreshEverySecond } from './refreshEverySecond.ts'
import { withDatabase } from './withDatabase.ts'
import { count, formatAge, formatSize, formatTime, shorten, singleLine } from './formatting.ts'

const OWNER_WIDTH = 32

/** How far each dispatcher is, and what holds the events. */
export function status({ values }: Call): Promise<Outcome> {
  return withDatabase(values, ({ lockstep }) => look(lockstep))
}

/** The same, every second again. */
export function watchStatus({ values }: Call, show: (outcome: Outcome) => void, stop: AbortSignal): Promise<void> {
  return withDatabase(values, ({ lockstep }) => refreshEverySecond(() => look(lockstep), show, stop))
}

async function look(lockstep: Lockstep): Promise<Outcome> {
  const seen = await lockstep.outbox.status()
  const totals = totalsOf(seen)
  return {
    exitCode: 0,
    json: {
      ok: true,
      command: 'outbox status',
      schema: lockstep.schema,
      at: new Date().toISOString(),
      ...forJson({ ...seen, totals }),
    },
    text: (terminal) => report(seen, totals, terminal),
  }
}

/** All dispatchers together: an event that two of them have before them counts twice. */
export interface OutboxTotals {
  readonly dispatchers: number
  readonly shards: number
  /** Shards without an owner. */
  readonly ownerless: number
  readonly lagEvents: number
  readonly lagMs: number
  readonly parkedStreams: number
  readonly heldStreams: number
  readonly segments: number
  readonly bytes: number
}

export function totalsOf({ shards, segments }: OutboxStatus): OutboxTotals {
  const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0)
  return {
    dispatchers: new Set(shards.map(({ dispatcher }) => dispatcher)).size,
    shards: shards.length,
    ownerless: shards.filter(({ owner }) => owner === undefined).length,
    lagEvents: sum(shards.map(({ lagEvents }) => lagEvents)),
    lagMs: Math.max(0, ...shards.map(({ lagMs }) => lagMs)),
    parkedStreams: sum(shards.map(({ parkedStreams }) => parkedStreams)),
    heldStreams: sum(shards.map(({ heldStreams }) => heldStreams)),
    segments: segments.length,
    bytes: sum(segments.map(({ bytes }) => bytes)),
  }
}

function report({ dispatchers, shards, segments }: OutboxStatus, totals: OutboxTotals, terminal: Terminal): string {
  const delivery =
    shards.length === 0
      ? 'No dispatcher has run yet: nothing is delivered, and everything is kept.'
      : [shardsTable(shards, terminal), ...topicsOf(dispatchers)].join('\n')
  return [delivery, segmentsTable(segments, terminal), terminal.paint('bold', verdictOf(totals))].join('\n\n')
}

function shardsTable(shards: readonly ShardStatus[], { columns, paint }: Terminal): string {
  const head = ['DISPATCHER', 'SHARD', 'OWNER', 'EVENTS', 'BEHIND', 'OLDEST UNDELIVERED', 'PARKED', 'HELD']
  const rows = shards.map(
    ({ dispatcher, shard, owner, lagEvents, lagEstimated, lagMs, oldestUndelivered, parkedStreams, heldStreams }) => [
      dispatcher,
      String(shard),
      owner === undefined ? paint('yellow', 'none') : shorten(singleLine(owner), OWNER_WIDTH),
      `${lagEstimated ? '~' : ''}${lagEvents}`,
      oldestUndelivered === undefined ? '-' : formatAge(lagMs),
      oldestUndelivered === undefined ? '-' : formatTime(oldestUndelivered),
      parkedStreams === 0 ? '-' : paint('yellow', String(parkedStreams)),
      heldStreams === 0 ? '-' : String(heldStreams),
    ],
  )
  return table([head.map((title) => paint('dim', title)), ...rows], columns)
}

/** A line for each dispatcher that does not deliver all topics. */
function topicsOf(dispatchers: OutboxStatus['dispatchers']): string[] {
  return dispatchers.flatMap(({ name, topics, topicsAfter }) =>
    topics === undefined
      ? []
      : [
          `${name} delivers ${singleLine(topics.join(', '))}${topicsAfter === 0 ? '' : ` since position ${topicsAfter}`}.`,
        ],
  )
}

function segmentsTable(segments: readonly SegmentStatus[], { columns, paint }: Terminal): string {
  const head = ['SEGMENT', 'OPENED', 'LEFT', 'SIZE', ''].map((title) => paint('dim', title))
  const rows = segments.map(({ number, openedAt, leftAt, bytes, current }) => [
    String(number),
    formatTime(openedAt),
    leftAt === undefined ? '-' : formatTime(leftAt),
    formatSize(bytes),
    current ? 'current' : '',
  ])
  return table([head, ...rows], columns)
}

function verdictOf(totals: OutboxTotals): string {
  const held = `${count(totals.segments, 'segment')}, ${formatSize(totals.bytes)}.`
  return totals.shards === 0 ? held : `${deliveryOf(totals)}; ${held}`
}

/** How far it is delivered, in a line. */
export function deliveryOf(totals: OutboxTotals): string {
  const { dispatchers, shards, ownerless, lagEvents, lagMs, parkedStreams, heldStreams } = totals
  const owned = ownerless === 0 ? '' : `, ${ownerless} without an owner`
  const behind =
    lagEvents === 0 ? 'nothing undelivered' : `${count(lagEvents, 'event')} behind by ${formatAge(lagMs)} at most`
  const waits = parkedStreams === 0 ? '' : `, ${count(parkedStreams, 'stream')} parked`
  const held = heldStreams === 0 ? '' : `, ${count(heldStreams, 'stream')} held until a time`
  return `${count(dispatchers, 'dispatcher')}, ${count(shards, 'shard')}${owned}; ${behind}${waits}${held}`
}
