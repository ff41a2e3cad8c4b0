/**
 * What the console's server and its page say to each other: JSON, over HTTP and server-sent events. Times are ISO text, durations
 * milliseconds, 64-bit numbers text; what is not known is `null`.
 *
 * | request | answer |
 * |---|---|
 * | `GET api/session` | `Session`; 401 where a token is needed and not given |
 * | `POST api/login` with `{ token, name? }` | sets the cookie; 204 or 401. The name is for the audit |
 * | `POST api/logout` | 204 |
 * | `GET api/stream?show=overview,locks` | server-sent events; the event's name is a tab, its data that tab's snapshot; or `trouble` with `Trouble` |
 * | `GET api/epochs` | `EpochHistory` |
 * | `GET api/guards` | `GuardList` |
 * | `GET api/history` | `OverviewHistory`: the last hour, one sample every ten seconds |
 * | `GET api/waits` | `WaitHistory` |
 * | `GET api/leases/history?key=…` | `LeaseHistory` |
 * | `GET api/outbox/payload?dispatcher=…&topic=…&key=…` | `Payload` of the stream's head; operators only |
 * | `GET api/leases/search?q=…` | `LeaseSearch`: of all leases, those whose key, holder and metadata have all words |
 * | `GET api/events?topic&key&fromSeq&toSeq&from&to&header&value&newestFirst&cursor` | `EventList`. `header` is for operators only |
 * | `GET api/events/payload?topic=…&key=…&seq=…` | `Payload`; operators only |
 * | `GET api/dead?dispatcher&topic&key&error&cursor` | `DeadLetterList` |
 * | `GET api/outbox/many?what=…&dispatcher&topic&key&error` | `ManyPreview`: what `api/outbox/redrive` would work on |
 * | `GET api/consumers` | `ConsumerList` |
 * | `GET api/inbox?consumer&topic&key&cursor` | `InboxList` |
 * | `GET api/idempotency?scope&prefix&cursor` | `IdempotencyList` |
 * | `GET api/rollout` | `RolloutList` |
 * | `GET api/audit?verb&topic&key&name&cursor` | `AuditList` |
 * | `POST api/leases/release` with `ReleaseLease` | `Done` |
 * | `POST api/outbox/redrive`, `skip-many` with `OnMany`, `replay` with `ReplayStream`, `remove` with `RemoveDispatcher` | `Done` |
 * | `POST api/outbox/retry`, `pause`, `resume` with `OnStream`, `skip` with `SkipEvent` | `Done` |
 *
 * A POST carries the session's `csrf` in the header `x-lockstep-csrf` (login: any value) and comes from the same origin. What is
 * refused is a `Problem` (application/problem+json).
 */
export type Tab = 'overview' | 'locks' | 'leases' | 'outbox'

export interface Session {
  readonly version: string
  readonly schema: string
  /** Empty while the database does not answer; so is `server`. */
  readonly database: string
  readonly server: string
  /** Whether this session can change anything. */
  readonly operator: boolean
  /** Who looks; null where it is not known. */
  readonly name: string | null
  /** Whether there is a way to log out. */
  readonly token: boolean
  /** Names of the sinks to which operators can replay. */
  readonly replayTo: readonly string[]
  readonly csrf: string
}

export interface Problem {
  readonly status: number
  readonly code: string
  readonly title: string
  readonly detail: string
}

export interface Done {
  readonly ok: true
  readonly message: string
}

/** The database does not answer what is asked for the tabs of this stream. It is asked again; the next snapshot is the end of it. */
export interface DatabaseProblem {
  readonly message: string
}

/** Says what happened since the one before, and how things stand. The page keeps the last ones for its charts. */
export interface OverviewSnapshot {
  readonly at: string
  /** Of the database, with all its clients. Null in the first one. */
  readonly commitsPerSecond: number | null
  readonly rollbacksPerSecond: number | null
  /** Of the outbox. Null in the first one. */
  readonly enqueuedPerSecond: number | null
  readonly deliveredPerSecond: number | null
  readonly locksHeld: number
  readonly lockWaiters: number
  readonly longestLockWaitMs: number
  readonly leasesHeld: number
  readonly leaseWaiters: number
  readonly outboxLagEvents: number
  readonly outboxLagMs: number
  readonly parkedStreams: number
  /** Shards without an owner. */
  readonly shardsWithoutOwner: number
  readonly connections: number
  readonly maxConnections: number
}

/** What the charts show, of some moment of the last hour. Null: not known of that moment. */
export interface HistorySample {
  readonly at: string
  readonly commitsPerSecond: number | null
  readonly rollbacksPerSecond: number | null
  readonly enqueuedPerSecond: number | null
  readonly deliveredPerSecond: number | null
  readonly lockWaiters: number | null
  readonly longestLockWaitMs: number | null
  readonly outboxLagEvents: number | null
  readonly outboxLagMs: number | null
}

/** What the process that serves the console remembers, and what Prometheus knows if it was given; the oldest first. */
export interface OverviewHistory {
  readonly samples: readonly HistorySample[]
  /** Why Prometheus says nothing; null where it answers, or was not given. */
  readonly trouble: string | null
}

/** Keys for which a sample of the last hour found waiting sessions; the longest wait first. */
export interface WaitHistory {
  readonly waits: readonly {
    readonly key: string
    readonly longestWaitMs: number
    readonly mostWaiters: number
    /** In how many samples a session waited. */
    readonly seen: number
    readonly lastAt: string
  }[]
}

export interface Claim {
  readonly pid: number
  readonly mode: 'exclusive' | 'shared'
  readonly application: string | null
  readonly state: string | null
  /** How long its transaction is open, for a holder; how long it waits, for a waiter. */
  readonly forMs: number | null
}

export interface LockRow {
  readonly id: string
  readonly key: string | null
  readonly operation: string | null
  readonly holders: readonly Claim[]
  readonly waiters: readonly Claim[]
  /** Callers in the memory of the process that serves the console, behind another caller of it. */
  readonly queued: number
}

/** A session that others wait for, with those. */
export interface BlockingBranch {
  readonly pid: number
  readonly application: string | null
  readonly state: string | null
  readonly waitedMs: number | null
  /** The key, or what else it waits for. */
  readonly waitsFor: string | null
  readonly blocks: readonly BlockingBranch[]
}

export interface LocksSnapshot {
  readonly at: string
  readonly locks: readonly LockRow[]
  readonly tree: readonly BlockingBranch[]
  /** How many there are beyond those in `locks`. */
  readonly more: number
}

export interface LeaseHolderRow {
  readonly holder: string
  /** What its metadata says, shortened; null where it has none. */
  readonly about: string | null
  readonly slot: number
  readonly fence: string
  readonly since: string
  readonly until: string
}

export interface LeaseRow {
  readonly key: string
  readonly permits: number
  readonly holders: readonly LeaseHolderRow[]
  readonly waiters: readonly { readonly holder: string; readonly since: string }[]
}

export interface LeasesSnapshot {
  readonly at: string
  readonly leases: readonly LeaseRow[]
  readonly more: number
}

export interface LeaseHistory {
  readonly key: string
  readonly entries: readonly {
    readonly holder: string
    readonly fence: string
    readonly since: string
    readonly endedAt: string
    readonly ending: 'released' | 'expired' | 'forced'
    readonly by: string | null
    readonly reason: string | null
  }[]
}

/** A server epoch: from one crash, promotion or restore to the next. */
export interface EpochEntry {
  readonly history: string
  readonly generation: number
  readonly kind: 'first' | 'restart' | 'timeline' | 'copy'
  readonly timeline: number
  /** Of the server, as it sees itself. */
  readonly address: string | null
  readonly beganAt: string
  /** The last moment of the epoch before that this server knows, by the old server's clock; null where nothing can be missing. */
  readonly lastKnownAt: string | null
}

/** The last server epochs, the newest first. */
export interface EpochHistory {
  readonly entries: readonly EpochEntry[]
  /** How long new leases still wait after a failover; null where they do not. */
  readonly grantsInMs: number | null
}

/** Tables that can be written only under a lock. */
export interface GuardList {
  readonly guards: readonly GuardRow[]
}

export interface GuardRow {
  readonly table: string
  readonly key: string
  readonly held: 'lock' | 'lease'
  /** `observe`, `enforce`, or a percentage such as `10%`. */
  readonly mode: string
  readonly state: string
  readonly addedAt: string
  readonly unlocked: number
  readonly listed: number
  readonly refused: number
  /** The newest writes without the lock. */
  readonly samples: readonly GuardSampleRow[]
}

export interface GuardSampleRow {
  readonly at: string
  readonly operation: string
  /** Null: TRUNCATE. */
  readonly key: string | null
  readonly application: string
  readonly role: string
  readonly query: string
}

export interface ShardRow {
  readonly dispatcher: string
  readonly shard: number
  readonly owner: string | null
  readonly fence: string | null
  readonly lagEvents: number
  readonly lagEstimated: boolean
  readonly lagMs: number
  readonly parkedStreams: number
  /** Streams that are held until a time. */
  readonly heldStreams: number
  readonly movedAt: string | null
}

export interface ParkedRow {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly state: 'parked' | 'held' | 'blocked' | 'paused'
  readonly attempts: number
  readonly reason: string | null
  readonly since: string
  readonly nextAttemptAt: string | null
  readonly events: number
  readonly head: number | null
  readonly headId: string | null
}

export interface DispatcherRow {
  readonly name: string
  readonly shards: number
  /** Null: all. */
  readonly topics: readonly string[] | null
}

export interface OutboxSnapshot {
  readonly at: string
  readonly dispatchers: readonly DispatcherRow[]
  readonly shards: readonly ShardRow[]
  readonly parked: readonly ParkedRow[]
  readonly more: number
  readonly segments: readonly {
    readonly number: number
    readonly openedAt: string
    readonly leftAt: string | null
    readonly current: boolean
    readonly bytes: number
  }[]
}

export interface Payload {
  readonly seq: number
  readonly id: string
  readonly enqueuedAt: string
  readonly headers: Readonly<Record<string, unknown>>
  /** JSON text, or base64 where the event is bytes. */
  readonly payload: string
  readonly encoding: 'json' | 'base64'
}

/** A retained event, without payload and headers. */
export interface EventRow {
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly id: string
  readonly position: number
  readonly enqueuedAt: string
  readonly erased: boolean
  readonly storedBytes: number
}

/** A page of a search. Where `next` is not null, there may be more. */
export interface EventList {
  readonly events: readonly EventRow[]
  readonly next: string | null
  /** How many positions were looked at for this page. */
  readonly scanned: number
}

/** An event that was given up. */
export interface DeadLetterRow {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly id: string
  readonly enqueuedAt: string
  readonly diedAt: string
  readonly reason: string | null
  readonly storedBytes: number
  /** Whether it can be enqueued again. */
  readonly usable: boolean
}

export interface DeadLetterList {
  readonly deadLetters: readonly DeadLetterRow[]
  readonly next: string | null
}

/** What an operator would work on: its ids are what `OnMany` takes. */
export interface ManyPreview {
  readonly what: 'parked' | 'dead'
  readonly found: readonly ManyRow[]
  /** Whether there are more. */
  readonly more: boolean
}

/** A dead letter, or the event at the head of a stream that waits. */
export interface ManyRow {
  readonly id: string
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly reason: string | null
  readonly usable: boolean
}

export interface OnMany {
  readonly what: 'parked' | 'dead'
  readonly dispatcher: string
  readonly ids: readonly string[]
  readonly reason: string
}

export interface ReplayStream {
  /** One of `Session.replayTo`. */
  readonly to: string
  readonly topic: string
  readonly key: string
  readonly fromSeq: number
  readonly toSeq: number
  readonly reason: string
}

export interface RemoveDispatcher {
  readonly dispatcher: string
  readonly reason: string
}

/** A dispatcher of this outbox, or a consumer with positions in this inbox. One of `lockstep.consumer()` is both. */
export interface ConsumerRow {
  readonly name: string
  /** Whether the outbox of this database delivers to it. If not, its broker knows the lag. */
  readonly dispatched: boolean
  /** Null: all, or not known here. */
  readonly topics: readonly string[] | null
  /** In how many streams it has a position, counted up to 10,000. */
  readonly streams: number
  readonly shardsWithoutOwner: number
  readonly lagEvents: number
  readonly lagMs: number
  readonly parkedStreams: number
}

export interface ConsumerList {
  readonly consumers: readonly ConsumerRow[]
  readonly next: null
}

/** How far a consumer is in a stream. */
export interface InboxRow {
  readonly consumer: string
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly id: string | null
}

export interface InboxList {
  readonly positions: readonly InboxRow[]
  readonly next: string | null
}

/** An answer that is kept, without headers and body. */
export interface IdempotencyRow {
  readonly scope: string
  readonly key: string
  readonly status: number
  readonly bodyBytes: number
  readonly createdAt: string
  readonly expiresAt: string
}

export interface IdempotencyList {
  readonly records: readonly IdempotencyRow[]
  readonly next: string | null
}

/** A rollout rule, and what the process that serves the console has observed under it. */
export interface RolloutRow {
  readonly prefix: string
  /** `on`, `observe`, `off`, or a percentage such as `10%`. */
  readonly mode: string
  readonly reason: string
  readonly changedAt: string
  /** Calls that were only observed and would have waited. */
  readonly wouldWait: number
  readonly longestWaitMs: number
  readonly duplicates: number
}

export interface RolloutList {
  readonly rules: readonly RolloutRow[]
  /** Since when this process observes. */
  readonly since: string
}

/** What an operator did. */
export interface AuditRow {
  /** Of the outbox, or of the leases. */
  readonly of: 'outbox' | 'leases'
  readonly id: string
  readonly at: string
  readonly verb: string
  readonly by: string | null
  readonly role: string | null
  readonly address: string | null
  readonly dispatcher: string | null
  readonly topic: string | null
  readonly key: string | null
  readonly seq: number | null
  readonly reason: string | null
}

export interface AuditList {
  readonly entries: readonly AuditRow[]
  readonly next: string | null
}

/** Some of all leases that are held. */
export interface LeaseSearch {
  readonly leases: readonly FoundLease[]
  /** Whether there are more. */
  readonly more: boolean
}

export interface FoundLease extends LeaseHolderRow {
  readonly key: string
  readonly permits: number
  readonly waiters: number
}

export interface ReleaseLease {
  readonly key: string
  readonly reason: string
  /** End the holder's open transaction instead of waiting for it. */
  readonly terminate: boolean
}

export interface StreamAction {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly reason: string
}

export interface SkipEvent extends StreamAction {
  readonly seq: number
  /** The id of the event that was shown. */
  readonly headId?: string | null
}

export interface Snapshots {
  readonly overview: OverviewSnapshot
  readonly locks: LocksSnapshot
  readonly leases: LeasesSnapshot
  readonly outbox: OutboxSnapshot
}
