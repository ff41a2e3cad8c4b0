import type { BlockingNode, Claim, HistoryEntry, LeaseInfo, ListedWaiter, LockListing, OutboxStatus } from '../index.ts'
import type { Guard, GuardSample, ParkedStream } from '../index.ts'
import type { EpochRow } from './console.sql.ts'
import type * as wire from './wire.ts'

/** More rows than these are counted, not shown. */
export const MAX_ROWS = 2000

type Without<T> = Omit<T, 'at'>

export function locksSnapshot({ locks, tree }: LockListing): Without<wire.LocksSnapshot> {
  const waitedMs = new Map<string, number>()
  for (const { id, waiters } of locks) for (const each of waiters) waitedMs.set(`${each.pid} ${id}`, each.waitedMs)
  return {
    locks: locks.slice(0, MAX_ROWS).map(({ id, key, operation, holders, waiters, queued }) => ({
      id: String(id),
      key: key ?? null,
      operation: operation ?? null,
      holders: holders.map((each) => claimOf(each, each.heldForMs)),
      waiters: waiters.map((each: ListedWaiter) => claimOf(each, each.waitedMs)),
      queued,
    })),
    tree: tree.map((node) => branchOf(node, waitedMs)),
    more: Math.max(0, locks.length - MAX_ROWS),
  }
}

function claimOf({ pid, mode, application, state }: Claim, forMs: number | undefined): wire.Claim {
  return { pid, mode, application: application ?? null, state: state ?? null, forMs: forMs ?? null }
}

const KINDS: Readonly<Record<string, string>> = {
  transactionid: 'a row',
  tuple: 'a row',
  relation: 'a table',
  advisory: 'an advisory lock of another kind',
}

function branchOf(node: BlockingNode, waitedMs: ReadonlyMap<string, number>): wire.BlockingBranch {
  const { pid, application, state, waitsFor, blocks } = node
  return {
    pid,
    application: application ?? null,
    state: state ?? null,
    waitedMs: waitedMs.get(`${pid} ${waitsFor?.id}`) ?? null,
    waitsFor: waitsFor === undefined ? null : nameOf(waitsFor),
    blocks: blocks.map((each) => branchOf(each, waitedMs)),
  }
}

function nameOf({ key, id, kind }: NonNullable<BlockingNode['waitsFor']>): string {
  return key ?? (id === undefined ? (KINDS[kind] ?? `a lock (${kind})`) : String(id))
}

/** A lease's end is reported as time left, which is a little off each time: nearer than this it is the same end. */
const SAME_END_MS = 500

/** Makes snapshots of leases in which an end that has not moved is reported as the same moment. */
export class LeaseSnapshots {
  #ends = new Map<string, number>()

  take(leases: readonly LeaseInfo[], names: number, now: number): Without<wire.LeasesSnapshot> {
    const ends = new Map<string, number>()
    const shown = leases.slice(0, MAX_ROWS).map(({ key, permits, holders, waiters }) => ({
      key,
      permits,
      holders: holders.map(({ holder, metadata, slot, fence, since, leftMs }) => {
        const name = `${slot} ${fence} ${key}`
        const before = this.#ends.get(name)
        const end = now + leftMs
        const until = before !== undefined && Math.abs(end - before) < SAME_END_MS ? before : end
        ends.set(name, until)
        return {
          holder,
          about: aboutOf(metadata),
          slot,
          fence: String(fence),
          since: since.toISOString(),
          until: new Date(until).toISOString(),
        }
      }),
      waiters: waiters.map(({ holder, since }) => ({ holder, since: since.toISOString() })),
    }))
    this.#ends = ends
    return { leases: shown, more: Math.max(0, names - shown.length) }
  }
}

/** A snapshot has many rows, and metadata up to 4,096 bytes each. */
const MAX_ABOUT = 200

export function aboutOf(metadata: LeaseInfo['holders'][number]['metadata']): string | null {
  if (metadata === undefined) return null
  const text = Object.entries(metadata)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ')
  if (text === '') return null
  return text.length > MAX_ABOUT ? `${text.slice(0, MAX_ABOUT)}…` : text
}

export function outboxSnapshot(
  { dispatchers, shards, segments }: OutboxStatus,
  parked: readonly ParkedStream[],
): Without<wire.OutboxSnapshot> {
  const all = shards.reduce((sum, { parkedStreams, heldStreams }) => sum + parkedStreams + heldStreams, 0)
  return {
    dispatchers: dispatchers.map(({ name, topics }) => ({
      name,
      shards: shards.filter(({ dispatcher }) => dispatcher === name).length,
      topics: topics ?? null,
    })),
    shards: shards.map((each) => ({
      dispatcher: each.dispatcher,
      shard: each.shard,
      owner: each.owner ?? null,
      fence: each.fence === undefined ? null : String(each.fence),
      lagEvents: each.lagEvents,
      lagEstimated: each.lagEstimated,
      lagMs: each.lagMs,
      parkedStreams: each.parkedStreams,
      heldStreams: each.heldStreams,
      movedAt: each.movedAt?.toISOString() ?? null,
    })),
    parked: parked.map((each) => ({
      dispatcher: each.dispatcher,
      topic: each.topic,
      key: each.key,
      state: each.state,
      attempts: each.attempts,
      reason: each.reason ?? null,
      since: each.since.toISOString(),
      nextAttemptAt: each.nextAttemptAt?.toISOString() ?? null,
      events: each.events,
      head: each.head ?? null,
      headId: each.headId ?? null,
    })),
    more: Math.max(0, all - parked.length),
    segments: segments.map(({ number, openedAt, leftAt, current, bytes }) => ({
      number,
      openedAt: openedAt.toISOString(),
      leftAt: leftAt?.toISOString() ?? null,
      current,
      bytes,
    })),
  }
}

/** A guard as the page shows it. */
export function guardRow(guard: Guard, samples: readonly GuardSample[]): wire.GuardRow {
  const { table, key, held, mode, state, addedAt, unlocked, listed, refused } = guard
  return {
    table,
    key,
    held,
    mode: typeof mode === 'string' ? mode : `${mode.percent}%`,
    state,
    addedAt: addedAt.toISOString(),
    unlocked,
    listed,
    refused,
    samples: samples.map((each) => ({ ...each, at: each.at.toISOString(), key: each.key ?? null })),
  }
}

/** The server epochs as the page shows them. */
export function epochsOf(rows: readonly EpochRow[]): wire.EpochHistory {
  const timeOf = (ms: string): string => new Date(Number(ms)).toISOString()
  const grants = rows.find(({ grants_ms: ms }) => ms !== null)?.grants_ms
  return {
    entries: rows.map(({ history, generation, kind, timeline, address, began_ms: began, last_known_ms: known }) => ({
      history,
      generation: Number(generation),
      kind,
      timeline: Number(timeline),
      address,
      beganAt: timeOf(began),
      lastKnownAt: known === null ? null : timeOf(known),
    })),
    grantsInMs: grants === undefined || grants === null ? null : Number(grants),
  }
}
export function historyOf(key: string, entries: readonly HistoryEntry[]): wire.LeaseHistory {
  return {
    key,
    entries: entries.map(({ holder, fence, since, endedAt, ending, by, reason }) => ({
      holder,
      fence: String(fence),
      since: since.toISOString(),
      endedAt: endedAt.toISOString(),
      ending,
      by: by ?? null,
      reason: reason ?? null,
    })),
  }
}
