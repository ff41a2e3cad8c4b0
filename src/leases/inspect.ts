import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { type Connection, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { history, type HistoryRow, type HolderRow, holdersOf, type WaiterRow, waitersOf } from './leases.sql.ts'

/** One holder of a lease. */
export interface LeaseHolder {
  readonly holder: string
  readonly metadata: Readonly<Record<string, unknown>> | undefined
  readonly slot: number
  readonly fence: bigint
  readonly since: Date
  /** Until it ends, if it is not renewed. */
  readonly leftMs: number
}

/** One who waits. */
export interface LeaseWaiter {
  readonly holder: string
  readonly since: Date
}

/** A lease that is held or waited for. */
export interface LeaseInfo {
  readonly key: string
  readonly permits: number
  readonly holders: readonly LeaseHolder[]
  /** In the order in which they get it. */
  readonly waiters: readonly LeaseWaiter[]
}

/** The same of one lease; `held` is false if it is free. */
export interface LeaseDetails extends LeaseInfo {
  readonly held: boolean
}

/** How a lease was held. */
export interface HistoryEntry extends Omit<LeaseHolder, 'leftMs'> {
  readonly endedAt: Date
  /** `expired`: the holder had stopped renewing it; seen when the next one took it. */
  readonly ending: 'released' | 'expired' | 'forced'
  /** Who took it away. */
  readonly by: string | undefined
  readonly reason: string | undefined
}

const DEFAULT_LIMIT = 1000
const MAX_LIMIT = 100_000

/** What `leases.list()` takes. */
export interface ListLeasesOptions {
  readonly prefix?: string
  readonly limit?: number
}

const LIST_OPTIONS: OptionNames<ListLeasesOptions> = { prefix: true, limit: true }

/** What `leases.history()` takes beside the key. */
export interface LeaseHistoryOptions {
  readonly limit?: number
}

const HISTORY_OPTIONS: OptionNames<LeaseHistoryOptions> = { limit: true }

export async function listLeases(context: LockstepContext, options: ListLeasesOptions): Promise<LeaseInfo[]> {
  checkOptions('leases.list()', options, LIST_OPTIONS)
  const { prefix = '', limit = DEFAULT_LIMIT } = options
  return readLeases(context, 'all', prefix, checkLimit(limit))
}

export async function inspect(context: LockstepContext, key: Key): Promise<LeaseDetails> {
  const [found] = await readLeases(context, 'one', key, MAX_LIMIT)
  const info = found ?? { key, permits: 1, holders: [], waiters: [] }
  return { ...info, held: info.holders.length > 0 }
}

export async function historyOf(
  context: LockstepContext,
  key: Key,
  options: LeaseHistoryOptions,
): Promise<HistoryEntry[]> {
  checkOptions('leases.history()', options, HISTORY_OPTIONS)
  const { limit = 100 } = options
  const values = [key, checkLimit(limit)]
  const { rows } = await ask(context, (connection) => connection.read(history(context.quotedSchema), values))
  return (rows as unknown as HistoryRow[]).map((row) => ({
    holder: row.holder,
    metadata: metadataOf(row.metadata),
    slot: Number(row.slot),
    fence: BigInt(row.fence),
    since: new Date(Number(row.since)),
    endedAt: new Date(Number(row.ended)),
    ending: row.ending,
    by: row.by ?? undefined,
    reason: row.reason ?? undefined,
  }))
}

async function readLeases(
  context: LockstepContext,
  which: 'all' | 'one',
  name: string,
  limit: number,
): Promise<LeaseInfo[]> {
  const { quotedSchema } = context
  const [holding, waiting] = await ask(context, async (connection) => [
    await connection.read(holdersOf(quotedSchema, which), [name, limit]),
    await connection.read(waitersOf(quotedSchema, which), [name, limit]),
  ])
  const found = new Map<string, { permits: number; holders: LeaseHolder[]; waiters: LeaseWaiter[] }>()
  const entry = (key: string): { permits: number; holders: LeaseHolder[]; waiters: LeaseWaiter[] } => {
    let each = found.get(key)
    if (each === undefined) found.set(key, (each = { permits: 1, holders: [], waiters: [] }))
    return each
  }
  for (const row of (holding?.rows ?? []) as unknown as HolderRow[]) {
    const each = entry(row.name)
    each.permits = Number(row.permits)
    each.holders.push({
      holder: row.holder,
      metadata: metadataOf(row.metadata),
      slot: Number(row.slot),
      fence: BigInt(row.fence),
      since: new Date(Number(row.since)),
      leftMs: Number(row.left),
    })
  }
  for (const row of (waiting?.rows ?? []) as unknown as WaiterRow[]) {
    entry(row.name).waiters.push({ holder: row.holder, since: new Date(Number(row.since)) })
  }
  return [...found].map(([key, each]) => ({ key, ...each }))
}

async function ask<T>(context: LockstepContext, work: (connection: Connection) => Promise<T>): Promise<T> {
  await context.ready()
  return withConnection(context.driver, work, context.silence)
}

function metadataOf(text: string | null): Readonly<Record<string, unknown>> | undefined {
  return text === null ? undefined : (JSON.parse(text) as Record<string, unknown>)
}

function checkLimit(limit: unknown): number {
  if (typeof limit === 'number' && Number.isInteger(limit) && limit > 0 && limit <= MAX_LIMIT) return limit
  throw new InvalidOptionError(`limit is ${String(limit)}.`, { advice: `Use a whole number from 1 to ${MAX_LIMIT}.` })
}
