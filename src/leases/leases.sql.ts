import { quoteLiteral } from '../postgres/index.ts'

/** The SQL of the leases. Each is one message with a transaction of its own at READ COMMITTED, whatever the session's default. */
function message(statement: string, before = ''): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED; ${before} ${statement}; COMMIT`
}

export interface TakeRequest {
  readonly name: string
  readonly token: string
  readonly ttlMs: number
  readonly permits: number
  readonly holder: string
  /** JSON. */
  readonly metadata: string | undefined
  readonly place: string | undefined
  readonly history: boolean
}

export interface TakeRow {
  /** failover: no holder is known, but the row of a holder can be missing. ttl: longer than `left`, which the schema allows. */
  readonly verdict: 'granted' | 'held' | 'permits' | 'failover' | 'ttl'
  readonly slot: string | null
  readonly fence: string | null
  readonly holder: string | null
  /** Milliseconds since 1970. */
  readonly since: string | null
  readonly left: string | null
  readonly permits: string | null
  readonly pid: string
  readonly standby: string
}

export function take(schema: string, request: TakeRequest): string {
  const { name, token, ttlMs, permits, holder, metadata, place, history: remembered } = request
  const values = [
    quoteLiteral(name),
    `'${token}'`,
    ttlMs,
    permits,
    quoteLiteral(holder),
    metadata === undefined ? 'NULL' : `${quoteLiteral(metadata)}::jsonb`,
    place ?? 'NULL',
    remembered,
  ]
  return message(`
    SELECT verdict, granted_slot::text AS slot, granted_fence::text AS fence, other_holder AS holder,
           (extract(epoch FROM other_since) * 1000)::bigint::text AS since, ceil(other_left_ms)::bigint::text AS left,
           other_permits::text AS permits, pg_backend_pid()::text AS pid, pg_is_in_recovery()::text AS standby
      FROM ${schema}.lease_take(${values.join(', ')})`)
}

/** A list of things of our own making, such as uuids and numbers. */
function list(values: readonly (string | number)[], type: string): string {
  return `'{${values.join(',')}}'::${type}[]`
}

function texts(values: readonly string[]): string {
  return `ARRAY[${values.map(quoteLiteral).join(', ')}]::text[]`
}

export interface RenewRow {
  readonly token: string
  readonly outcome: 'renewed' | 'lost' | 'unknown'
}

interface RenewedLease {
  readonly name: string
  readonly token: string
  readonly fence: bigint
  readonly ttlMs: number
}

function renewedLeases(leases: readonly RenewedLease[]): string {
  const names = texts(leases.map(({ name }) => name))
  const tokens = list(
    leases.map(({ token }) => token),
    'uuid',
  )
  const fences = list(
    leases.map(({ fence }) => String(fence)),
    'bigint',
  )
  const ttls = list(
    leases.map(({ ttlMs }) => ttlMs),
    'integer',
  )
  return `${names}, ${tokens}, ${fences}, ${ttls}`
}

export function renew(schema: string, leases: readonly RenewedLease[]): string {
  return message(`SELECT renewed_token::text AS token, outcome FROM ${schema}.lease_renew(${renewedLeases(leases)})`)
}

/** Holds leases again that were left to rest. */
export function revive(schema: string, leases: readonly RenewedLease[]): string {
  return message(`SELECT revived_token::text AS token FROM ${schema}.lease_revive(${renewedLeases(leases)})`)
}

/** Releases the lease. */
export function release(schema: string, name: string, token: string): string {
  // Only ours to lose: after a crash it expires instead.
  return message(
    `SELECT ${schema}.lease_release(${quoteLiteral(name)}, '${token}')::text AS released`,
    'SET LOCAL synchronous_commit = off;',
  )
}

/** Begins, and says in which session: behind a pooler only what is in one transaction is in one session. */
export const BEGIN_AND_PID = 'BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_backend_pid()::text AS pid'

export function forceRelease(schema: string, name: string, by: string, reason: string, waitMs: number): string {
  return `
    SET LOCAL lock_timeout = ${Math.max(1, Math.floor(waitMs))};
    SELECT ${schema}.lease_force_release(${[name, by, reason].map(quoteLiteral).join(', ')})::text AS released;
    COMMIT`
}

/** Ends the sessions whose transactions a session waits for, but not those that are there for the same. */
export function terminateBlockers(pid: number): string {
  return `
    SELECT pg_terminate_backend(h.pid)
      FROM pg_locks AS w
      JOIN pg_locks AS h ON h.locktype = 'transactionid' AND h.transactionid = w.transactionid AND h.granted
      JOIN pg_stat_activity AS a ON a.pid = h.pid
     WHERE w.pid = ${pid} AND w.locktype = 'transactionid' AND NOT w.granted
       AND a.query NOT LIKE '%lease_force_release%'`
}

export const ROLLBACK = 'ROLLBACK'

/** Puts waiters in the queue, in their order. */
export function enqueueWaiter(
  schema: string,
  waiters: readonly { readonly name: string; readonly token: string; readonly holder: string }[],
  keepMs: number,
): string {
  const names = texts(waiters.map(({ name }) => name))
  const tokens = list(
    waiters.map(({ token }) => token),
    'uuid',
  )
  const holders = texts(waiters.map(({ holder }) => holder))
  return message(
    `SELECT waiting_token::text AS token, waiting_place::text AS place
       FROM ${schema}.lease_wait(${names}, ${tokens}, ${holders}, ${keepMs})`,
    'SET LOCAL synchronous_commit = off;',
  )
}

export interface LookRow {
  readonly token: string
  readonly ready: string
  readonly left: string | null
}

export function look(
  schema: string,
  waiters: readonly { readonly token: string; readonly permits: number }[],
  keepMs: number,
): string {
  const tokens = list(
    waiters.map(({ token }) => token),
    'uuid',
  )
  const permits = list(
    waiters.map((waiter) => waiter.permits),
    'integer',
  )
  return message(
    `SELECT waiting_token::text AS token, ready::text AS ready, ceil(left_ms)::bigint::text AS left
       FROM ${schema}.lease_look(${tokens}, ${permits}, ${keepMs})`,
    'SET LOCAL synchronous_commit = off;',
  )
}

/** Takes waiters out of the queue, and wakes the one that is first now. */
export function dequeueWaiter(schema: string, tokens: readonly string[]): string {
  return message(`SELECT ${schema}.lease_leave(${list(tokens, 'uuid')})`, 'SET LOCAL synchronous_commit = off;')
}

/** The first statement of a holder's transaction: no row means that the lease is lost, or that the snapshot is older than the lease. */
export function guard(schema: string): string {
  return `SELECT 1 WHERE ${schema}.lease_guard($1::text, $2::text::uuid, $4::text::bigint, $3::text::float8)`
}

/** One row if the transaction's snapshot can show a lease that was granted this many milliseconds ago. */
export const SEES_LEASE = `
  SELECT 1
   WHERE current_setting('transaction_isolation') = 'read committed'
      OR clock_timestamp() - transaction_timestamp() < $1::text::float8 * interval '1 millisecond'`

const HOLDER_COLUMNS = `
  name, slot::text AS slot, permits::text AS permits, fence::text AS fence, holder,
  metadata::text AS metadata, (extract(epoch FROM acquired_at) * 1000)::bigint::text AS since,
  ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint::text AS left`

export interface HolderRow {
  readonly name: string
  readonly slot: string
  readonly permits: string
  readonly fence: string
  readonly holder: string
  readonly metadata: string | null
  readonly since: string
  readonly left: string
}

/** Who holds what now; all names, those that begin with a prefix, or one. */
export function holdersOf(schema: string, which: 'all' | 'one'): string {
  return `SELECT ${HOLDER_COLUMNS} FROM ${schema}.lease_holders($1::text, ${which === 'one'}, $2::int)`
}

export interface ObservedHolderRow {
  readonly name: string
  readonly fence: string
  readonly holder: string
}

/** Who holds these names now, the first first. */
export function observedHolders(schema: string, names: readonly string[]): string {
  return `SELECT h.name, h.fence::text AS fence, h.holder
            FROM unnest(${texts(names)}) AS wanted(name), ${schema}.lease_holders(wanted.name, true, 1000) AS h
           ORDER BY h.fence`
}

export interface WaiterRow {
  readonly name: string
  readonly holder: string
  readonly since: string
}

export function waitersOf(schema: string, which: 'all' | 'one'): string {
  return `SELECT name, holder, (extract(epoch FROM since) * 1000)::bigint::text AS since
            FROM ${schema}.lease_queue($1::text, ${which === 'one'}, $2::int)`
}

export interface HistoryRow {
  readonly slot: string
  readonly fence: string
  readonly holder: string
  readonly metadata: string | null
  readonly since: string
  readonly ended: string
  readonly ending: 'released' | 'expired' | 'forced'
  readonly by: string | null
  readonly reason: string | null
}

export function history(schema: string): string {
  return `SELECT slot::text AS slot, fence::text AS fence, holder, metadata::text AS metadata,
                 (extract(epoch FROM acquired_at) * 1000)::bigint::text AS since,
                 (extract(epoch FROM ended_at) * 1000)::bigint::text AS ended, ending, ended_by AS by, reason
            FROM ${schema}.lease_endings($1::text, $2::int)`
}

/** Takes away old history, rows of leases that were unused for long, and waiters that are gone; a bounded number at a time. */
export function cleanUp(schema: string, keepHistory: number, idleMs: number): string {
  return message(`SELECT ${schema}.lease_clean_up(${keepHistory}, ${idleMs})`)
}
