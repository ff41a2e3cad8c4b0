import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  codeOf,
  type Connection,
  type Driver,
  FEATURE_NOT_SUPPORTED,
  INSUFFICIENT_PRIVILEGE,
  INVALID_SCHEMA_NAME,
  type SilenceWatch,
  UNDEFINED_TABLE,
  withConnection,
} from '../postgres/index.ts'
import { type Backend, type BlockingNode, blockingTree, type Claim, type Edge, edgesOf } from './blockingTree.ts'
import type { KeyQueue, QueuedKey } from './keyQueue.ts'
import { lockList, type LockListRow } from './lockList.sql.ts'

/** Options of `lockstep.locks.list()`. */
export interface ListLocksOptions {
  /** Whether to return the current or last statement of each session. It can contain values of your users. Default false. */
  readonly statements?: boolean
}

const LIST_LOCKS_OPTIONS: OptionNames<ListLocksOptions> = { statements: true }

/** One that waits for a lock at the server. */
export interface ListedWaiter extends Claim {
  /** How long this wait lasts. Lockstep waits in slices of at most 2 s and comes back at the end of the queue. */
  readonly waitedMs: number
}

/** One lock that is held or waited for. */
export interface ListedLock {
  /** The number that PostgreSQL locks. */
  readonly id: bigint
  /** Undefined if the name is not registered: a lock of other software, or of a Lockstep with `names: false`. */
  readonly key: string | undefined
  /** The key up to its first colon. */
  readonly operation: string | undefined
  readonly holders: readonly Claim[]
  /** In the order of the queue. */
  readonly waiters: readonly ListedWaiter[]
  /** Callers of this process that wait in its memory, behind another caller of it. */
  readonly queued: number
}

/** Who holds what, who waits, and who blocks whom, all of one moment. */
export interface LockListing {
  /** Those with the most waiters first, then those that are held for the longest time. */
  readonly locks: readonly ListedLock[]
  /** At each root a session that others wait for. Empty if no session waits. */
  readonly tree: readonly BlockingNode[]
}

/** The locks of the database, to look at. */
export interface Locks {
  /**
   * Lists the advisory locks of this database: Lockstep's by their keys, others by their numbers.
   *
   * @example
   * const { locks, tree } = await lockstep.locks.list()
   * for (const { key, holders, waiters } of locks) console.log(key, holders.length, waiters.length)
   */
  list(options?: ListLocksOptions): Promise<LockListing>
}

/** What the list is made with. `schema` is quoted. */
export interface ListContext {
  readonly driver: Driver
  readonly schema: string
  readonly silence: SilenceWatch
  readonly queue: KeyQueue
  /** Throws where nothing of the schema may be called. */
  readonly trust: (connection: Connection) => Promise<void>
}

/** The names cannot be had: no right, no table yet, or a standby, on which it cannot be read. */
const NAMELESS: ReadonlySet<string | undefined> = new Set([
  INSUFFICIENT_PRIVILEGE,
  UNDEFINED_TABLE,
  INVALID_SCHEMA_NAME,
  FEATURE_NOT_SUPPORTED,
])

/** Asks the server, and adds what this process knows. */
export async function listLocks(context: ListContext, options: ListLocksOptions): Promise<LockListing> {
  checkOptions('locks.list()', options, LIST_LOCKS_OPTIONS)
  const { statements = false } = options
  const ask = async (connection: Connection): Promise<LockListRow[]> => {
    await context.trust(connection)
    return askForRows(connection, context.schema, statements)
  }
  const rows = await withConnection(context.driver, ask, context.silence)
  return toListing(rows, context.queue.keys())
}

async function askForRows(connection: Connection, schema: string, statements: boolean): Promise<LockListRow[]> {
  const results = await connection.script(lockList(schema, statements)).catch((error: unknown) => {
    if (connection.lost || !NAMELESS.has(codeOf(error))) throw error
    return connection.script(lockList(undefined, statements))
  })
  return (results.at(-1)?.rows ?? []) as unknown as LockListRow[]
}

interface Collected {
  key: string | undefined
  readonly holders: Claim[]
  readonly waiters: ListedWaiter[]
  queued: number
}

/** Makes the list from the server's rows and the keys in this process's queue. */
export function toListing(rows: readonly LockListRow[], queued: readonly QueuedKey[]): LockListing {
  const found = new Map<bigint, Collected>()
  const at = (id: bigint): Collected => {
    let lock = found.get(id)
    if (lock === undefined) found.set(id, (lock = { key: undefined, holders: [], waiters: [], queued: 0 }))
    return lock
  }
  for (const row of rows) {
    if (row.kind !== 'lock') continue
    const lock = at(BigInt(row.id ?? 0))
    lock.key ??= row.key ?? undefined
    const claim: Claim = { ...toBackend(row, row.pid), mode: row.mode ?? 'exclusive' }
    if (row.granted === 'true') lock.holders.push(claim)
    else lock.waiters.push({ ...claim, waitedMs: toMs(row.waited) ?? 0 })
  }
  for (const { id, key, waiting } of queued) {
    // The queue has a key as soon as a caller asks; only those that are seen at the server, or waited for here, are news.
    if (waiting === 0 && !found.has(id)) continue
    const lock = at(id)
    lock.key = key
    lock.queued = waiting
  }
  const locks = [...found].map(([id, lock]) => ({ id, ...lock, operation: lock.key?.split(':', 1)[0] }))
  return { locks: locks.toSorted(worstFirst), tree: blockingTree([...edgesOf(locks), ...edgesOutsideList(rows)]) }
}

/** Those who wait for something that is not in the list, if a session in the list waits because of them. */
function edgesOutsideList(rows: readonly LockListRow[]): Edge[] {
  const known = new Map<number, Backend>()
  for (const row of rows) if (row.kind === 'lock') known.set(Number(row.pid ?? 0), toBackend(row, row.pid))
  const followed = new Map<string | null, LockListRow[]>()
  for (const row of rows) {
    if (row.kind === 'edge') followed.set(row.pid, [...(followed.get(row.pid) ?? []), row])
  }
  const edges: Edge[] = []
  // Those that are met on the way are followed as well.
  for (const waiter of known.values()) {
    for (const row of followed.get(String(waiter.pid)) ?? []) {
      const blocker = known.get(Number(row.blocker)) ?? toBackend(row, row.blocker)
      if (!known.has(blocker.pid)) known.set(blocker.pid, blocker)
      edges.push({ waiter, blocker, wanted: { id: undefined, key: undefined, kind: row.awaits ?? 'lock' } })
    }
  }
  return edges
}

function toBackend(row: LockListRow, pid: string | null): Backend {
  return {
    pid: Number(pid ?? 0),
    application: row.application || undefined,
    state: row.state ?? undefined,
    heldForMs: toMs(row.held),
    ...(row.statement === null ? {} : { statement: row.statement }),
  }
}

/** A server's clock that was put back must not make a time negative. */
function toMs(text: string | null): number | undefined {
  return text === null ? undefined : Math.max(0, Number(text))
}

function worstFirst(a: ListedLock, b: ListedLock): number {
  const waiting = ({ waiters, queued }: ListedLock): number => waiters.length + queued
  const heldMs = ({ holders }: ListedLock): number => Math.max(0, ...holders.map((holder) => holder.heldForMs ?? 0))
  return waiting(b) - waiting(a) || heldMs(b) - heldMs(a) || (a.id < b.id ? -1 : 1)
}
