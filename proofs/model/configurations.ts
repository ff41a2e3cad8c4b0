import type { Defines } from './spin.ts'

/** The model with one rule broken: a property has to find it out. */
export interface ModelMutant {
  /** Its `#define`. */
  readonly name: string
  readonly why: string
  /** The invariant that it breaks. */
  readonly breaks: string
  /** Where other bounds than those of the configuration show it, or show it sooner. */
  readonly defines?: Defines
}

/** A model with its bounds. Every state of it is visited. */
export interface Configuration {
  readonly name: string
  readonly model: string
  /** What it contains, in a sentence. */
  readonly bounds: string
  readonly defines: Defines
  /** Bounds of a few seconds, for `npm cit`. */
  readonly scaledDown?: Defines
  /** The invariants that are its properties. */
  readonly properties: readonly string[]
  readonly mutants: readonly ModelMutant[]
  /** Whether runs of the model are compared with the rules of replay.ts. */
  readonly replayed?: true
}

export const configurations: readonly Configuration[] = [
  {
    name: 'outbox: reading',
    model: 'outbox.pml',
    bounds: '2 writers with 2 transactions each, 4 events, 2 streams, 1 tick, 1 dispatcher',
    defines: { EVENTS: 4, TXNS: 2, TICKS: 1, TAKES: 1, ABORTS: 0 },
    properties: ['O1', 'O2', 'O4', 'O6', 'O8'],
    replayed: true,
    mutants: [
      {
        name: 'NUMBER_WITHOUT_LOCK',
        why: 'Events are numbered without the lock of their stream.',
        breaks: 'O1',
      },
      {
        name: 'TICK_WITHOUT_OWN_XID',
        why: 'A tick leaves out the transaction that records it.',
        breaks: 'O2',
      },
      {
        name: 'WINDOW_WITHOUT_HORIZON',
        why: 'A window takes in what was committed after its end.',
        breaks: 'O2',
      },
      {
        name: 'OPEN_WRITERS_FORGOTTEN',
        why: 'Of transactions that were open when the window began, nothing is read.',
        breaks: 'O2',
      },
      {
        name: 'WOKEN_BY_SEQUENCE',
        why: 'The dispatcher reads only if ids were given out since its last look.',
        breaks: 'O8',
      },
    ],
  },
  {
    name: 'outbox: owners',
    model: 'outbox.pml',
    bounds:
      '2 writers with 1 transaction each, 3 events, 2 streams, 1 tick, 2 dispatchers, 1 shard that is taken twice',
    defines: { EVENTS: 3, TXNS: 1, TICKS: 1, TAKES: 2, ABORTS: 0 },
    properties: ['O1', 'O2', 'O4', 'O6', 'O8'],
    replayed: true,
    mutants: [
      {
        name: 'CURSOR_WITHOUT_FENCE',
        why: 'A cursor moves whatever fence and version the caller has.',
        breaks: 'O4',
        defines: { TICKS: 0 },
      },
    ],
  },
  {
    name: 'outbox: rollbacks',
    model: 'outbox.pml',
    bounds:
      '2 writers with 1 transaction each that commit or roll back, 2 events, 2 streams, 2 dispatchers, 1 shard that is taken twice',
    defines: { EVENTS: 2, TXNS: 1, TAKES: 2, ABORTS: 1 },
    scaledDown: { EVENTS: 2, TXNS: 1, TAKES: 1, ABORTS: 1 },
    properties: ['O1', 'O2', 'O4', 'O6', 'O8'],
    replayed: true,
    mutants: [],
  },
  {
    name: 'outbox: refusals',
    model: 'outbox.pml',
    bounds:
      '2 writers with 1 transaction each, 2 events, 2 streams, 1 refusal, 2 dispatchers, 1 shard that is taken twice',
    defines: { EVENTS: 2, TXNS: 1, TAKES: 2, REFUSALS: 1, ABORTS: 0 },
    properties: ['O1', 'O2', 'O4', 'O5', 'O6', 'O8'],
    replayed: true,
    mutants: [
      {
        name: 'STREAM_NOT_PARKED',
        why: 'The cursor moves past a refused event, which is not parked.',
        breaks: 'O5',
        defines: { EVENTS: 3 },
      },
      {
        name: 'SENT_AFTER_FAILURE',
        why: 'Of a stream, events are sent after the first one that was refused.',
        breaks: 'O6',
        defines: { EVENTS: 3 },
      },
    ],
  },
  {
    name: 'outbox: crash',
    model: 'outbox.pml',
    bounds:
      '2 writers with 1 transaction each, 2 events, 2 streams, 1 crash, 2 dispatchers, 1 shard that is taken twice',
    defines: { EVENTS: 2, TXNS: 1, TAKES: 1, FAILURES: 1, ABORTS: 0 },
    properties: ['O1', 'O2', 'O3', 'O4', 'O6', 'O9', 'E1'],
    replayed: true,
    mutants: [
      { name: 'SENT_BEFORE_DURABLE', why: 'Events are sent before they are on disk.', breaks: 'O3' },
      {
        name: 'WINDOW_KEPT_OVER_CRASH',
        why: 'What was read before a crash is sent after it.',
        breaks: 'E1',
      },
    ],
  },
  {
    name: 'outbox: promotion',
    model: 'outbox.pml',
    bounds:
      '2 writers with 1 transaction each, 2 events, 2 streams, 1 promotion of a standby that is behind, 2 dispatchers, 1 shard that is taken twice',
    defines: { EVENTS: 2, TXNS: 1, TAKES: 1, FAILURES: 1, PROMOTION: true, ABORTS: 0 },
    properties: ['O1', 'O2', 'O4', 'O6', 'O9'],
    mutants: [
      {
        name: 'MOVED_IN_ANY_EPOCH',
        why: 'A cursor moves although the server epoch in which it was read is over.',
        breaks: 'O9',
        defines: { TXNS: 2 },
      },
      {
        name: 'EVENT_WITHOUT_GENERATION',
        why: 'Events can be numbered before the server epoch has begun.',
        breaks: 'O9',
        defines: { TXNS: 2 },
      },
    ],
  },
  {
    name: 'leases',
    model: 'lease.pml',
    bounds: '2 callers, 1 lease, 2 grants, late heartbeats and releases, 2 transactions at a time, 4 steps of time',
    defines: { TIME: 4, GRANTS: 2 },
    scaledDown: { TIME: 3, GRANTS: 2 },
    properties: ['L1', 'L2', 'L3', 'L5'],
    mutants: [
      {
        name: 'TAKEN_WITHOUT_ROW_LOCK',
        why: 'Two callers read that the lease is free, and both take it.',
        breaks: 'L1',
      },
      {
        name: 'RENEWED_BY_UPSERT',
        why: 'A heartbeat that comes late takes the lease again.',
        breaks: 'L1',
        defines: { WITHOUT_TRANSACTIONS: true },
      },
      { name: 'FENCE_USED_AGAIN', why: 'A grant has the fence of the last one.', breaks: 'L1' },
      { name: 'TRUST_FROM_ANSWER', why: 'The holder counts from the answer.', breaks: 'L2' },
      {
        name: 'HEARTBEAT_TRUSTED_FROM_ANSWER',
        why: 'The holder counts from the answer to its heartbeat.',
        breaks: 'L2',
      },
      { name: 'NO_FOR_KEY_SHARE', why: 'A transaction of a holder does not lock the row.', breaks: 'L3' },
      { name: 'RELEASE_WITHOUT_TOKEN', why: 'A release ends the lease, also that of another holder.', breaks: 'L5' },
    ],
  },
  {
    name: 'leases: crash',
    model: 'lease.pml',
    bounds: '2 callers, 1 lease, 2 grants on each side of 1 crash, 4 steps of time',
    defines: { TIME: 4, GRANTS: 2, CRASH: true },
    properties: ['L1', 'L2', 'L3', 'L5'],
    mutants: [
      {
        name: 'ANSWERED_BEFORE_DISK',
        why: 'A lease is granted before it is on disk.',
        breaks: 'L1',
      },
    ],
  },
  {
    name: 'leases: promotion',
    model: 'lease.pml',
    bounds:
      '2 callers, 1 lease, 2 grants on each side of 1 promotion to a standby that is behind, with another clock, 3 steps of time; no transactions, no late messages',
    defines: { TIME: 3, GRANTS: 2, PROMOTION: true, WITHOUT_TRANSACTIONS: true, WITHOUT_LATE_MESSAGES: true },
    properties: ['L1', 'L2', 'L6'],
    mutants: [
      {
        name: 'GRANTED_AT_ONCE_AFTER_FAILOVER',
        why: 'Leases without a known holder are granted at once.',
        breaks: 'L6',
      },
      {
        name: 'EARLIER_TRY_COUNTS_AT_ONCE',
        why: 'A caller whose earlier try was granted by the old server is granted the lease at once by the new one.',
        breaks: 'L6',
      },
    ],
  },
  {
    name: 'leases: synchronous promotion',
    model: 'lease.pml',
    bounds:
      '2 callers, 1 lease, 2 grants on each side of 1 promotion to a standby that has every grant and renewal, with another clock, 3 steps of time; no transactions, no late messages',
    defines: {
      TIME: 3,
      GRANTS: 2,
      PROMOTION: true,
      SYNCHRONOUS: true,
      WITHOUT_TRANSACTIONS: true,
      WITHOUT_LATE_MESSAGES: true,
    },
    properties: ['L1', 'L2', 'L6'],
    mutants: [
      {
        name: 'JUDGED_BY_ANOTHER_CLOCK',
        why: 'The end of a lease is compared with the clock of the new server.',
        breaks: 'L6',
      },
    ],
  },
  {
    name: 'hand-over',
    model: 'handOver.pml',
    bounds: '3 sessions with 2 transactions each, 1 key, failures and cancels at every step',
    defines: {},
    scaledDown: {},
    properties: ['I2', 'I4'],
    mutants: [
      { name: 'LOCK_AFTER_SNAPSHOT', why: 'The transaction that reads takes the lock itself.', breaks: 'I2' },
      {
        name: 'HAND_OVER_LETS_GO',
        why: 'The first transaction does not keep the lock as a session lock.',
        breaks: 'I2',
      },
      {
        name: 'LATE_GRANT_COUNTS',
        why: 'A lock that came free after the first transaction is accepted.',
        breaks: 'I2',
      },
      { name: 'FAILURE_LEAVES_LOCK', why: 'After a failure the session lock is not released.', breaks: 'I4' },
    ],
  },
]
