import { setTimeout as sleep } from 'node:timers/promises'
import { type Consumer, type ConsumerOptions, type EventToEnqueue, Lockstep, type Transaction } from 'pg-lockstep'
import pg from 'pg'
import { RECORD_EFFECT } from './publicHarness.sql.ts'

/** What the adapter and the audit have in common. */

export const WORKER = 'jobs'
const TOPIC = 'jobs'
/** Jobs of one key are done in order. */
const KEYS = 256
/** A transaction that writes to more than 100 streams locks whole groups of them. */
const KEYS_OF_A_BATCH = 64

export interface Job {
  /** When it was enqueued, by the clock that all processes of a machine share. */
  readonly at: number
  readonly padding: string
}

/** A server that restarts is asked again soon: one process has few connections. */
export const RETRY = { connectionPauseMs: { first: 20, longest: 250 } }

/** A shard is one process's at a time, and a small batch: with few of them, transactions have more jobs. */
export const SHARDS = 4
/** Jobs that take a millisecond each: more than that is not in one transaction, whatever this says. */
const BATCH = 500

export interface Opened {
  readonly pool: pg.Pool
  readonly lockstep: Lockstep
}

export function open(url: string, connections: number): Opened {
  const pool = new pg.Pool({ connectionString: url, max: connections, connectionTimeoutMillis: 5000 })
  // Faults end connections that are idle. The pool opens others.
  pool.on('error', () => undefined)
  return { pool, lockstep: new Lockstep(pool, { retry: RETRY }) }
}

/** The jobs of one batch: so many keys in turn. */
export function jobsOf(batch: number, count: number, padding: string): EventToEnqueue[] {
  const at = Date.now()
  const first = batch * KEYS_OF_A_BATCH
  return Array.from({ length: count }, (_, place) => ({
    topic: TOPIC,
    key: `key ${(first + (place % KEYS_OF_A_BATCH)) % KEYS}`,
    payload: { at, padding } satisfies Job,
  }))
}

export interface Work {
  readonly workMs: number
  /** Whether each job leaves a row, in its transaction. */
  readonly audited: boolean
  readonly begun?: (job: Job) => void
  readonly done?: (job: Job) => void
}

/** The worker: each job once, in a transaction with the position of the consumer. */
export function workerOf(
  lockstep: Lockstep,
  { workMs, audited, begun, done }: Work,
  options: ConsumerOptions = {},
): Consumer {
  return lockstep.consumer(
    WORKER,
    { topics: [TOPIC], batch: BATCH, ...options },
    async ({ key, seq, payload }, tx: Transaction) => {
      begun?.(payload as Job)
      if (workMs > 0) await sleep(workMs)
      if (audited) await tx.queryAtCommit(RECORD_EFFECT, [key, seq])
      done?.(payload as Job)
    },
  )
}
