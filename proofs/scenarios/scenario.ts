import type { Key, Lease, LeaseOptions, Lockstep } from 'pg-lockstep'
import type pg from 'pg'
import type { Checker, Entry, Form, What } from '../history.ts'
import type { Random } from '../seed.ts'
import { BEGIN, COMMIT, ROLLBACK } from './scenario.sql.ts'

/** Everything that the lab makes stands in this schema, and goes with it. */
export const SCHEMA = 'lockstep_prove'

/** What an operation may add to its story. */
export type Parts = Partial<Pick<Entry, 'key' | 'value' | 'fence' | 'note'>>

/** One operation of a worker. */
export interface Operation {
  /** One of a kind in the run: what it leaves behind carries it. */
  readonly id: string
  readonly key: string
  /** 0 in the first lane of its worker, 1 in the second. */
  readonly lane: number
  readonly random: Random
  tell(what: What, parts?: Parts): void
  /** As `tell('active')`, but of the moment that was taken before it was made certain. */
  activeSince(moment: number, parts?: Parts): void
}

/** What a worker has at hand. */
export interface WorkerTools {
  /** Of the driver and over the way that this worker has. */
  readonly lockstep: Lockstep
  /** Plain connections, for those who do without Lockstep. */
  readonly pool: pg.Pool
  /** Aborted when the round is over. */
  readonly signal: AbortSignal
  /** How long a lease, a shard or a leadership stays with a process that is gone. */
  readonly ttlMs: number
  readonly round: number
  /** Operations at a time of this scenario in this worker. */
  readonly lanes: number
  /** Milliseconds since the round began, the same in all processes. */
  elapsedMs(): number
  /** The machine's clock, which cannot be set. */
  now(): number
  /** Asks the world outside: an exchange, a store, a broker. */
  ask<Answer>(service: string, question: unknown): Promise<Answer>
}

/** One form of a scenario in one worker. */
export interface ScenarioForm {
  /** What the operation is about. */
  keyFor(random: Random): string
  /** Done when it returns, with its answer; when it throws, it failed. */
  operate(operation: Operation): Promise<number | string | undefined | Pick<Parts, 'value' | 'note'>>
  /** What continues beside the operations until `signal`: a dispatcher, a consumer. */
  beside?(signal: AbortSignal): Promise<void>
}

/** What stands outside the database, in the coordinator: it takes what comes, and the history says what it took. */
export type OutsideWorld = (
  question: unknown,
  take: (entry: Omit<Entry, 'at' | 'by' | 'scenario' | 'what'>) => void,
) => unknown

export interface Scenario {
  readonly name: string
  readonly title: string
  /** What each form does, in a sentence. */
  readonly forms: Readonly<Record<Form, string>>
  /** Operations at a time in each worker. */
  readonly lanes: number
  readonly checkers: readonly Checker[]
  /** The names of invariants that the naive form has to break, each of them; one of any where there are none. */
  readonly naiveBreaks?: readonly string[]
  /** Its tables. */
  readonly tables: string
  /** What a round begins with. */
  prepare(round: number): { readonly text: string; readonly values: unknown[] } | undefined
  readonly play: Readonly<Record<Form, (hands: WorkerTools) => ScenarioForm>>
  /** A service for a round, where the scenario has one. */
  outside?(): OutsideWorld
  /** Questions whose rows (key, value, op) are what stands in the database in the end. */
  found(round: number, form: Form): { readonly text: string; readonly values: unknown[] } | undefined
}

/** Holds on for a while and says, again and again, that it is certain. Stops when it is not. */
export async function beActive(
  hands: WorkerTools,
  operation: Operation,
  forMs: number,
  certain: () => boolean,
  fence?: bigint,
): Promise<void> {
  const until = hands.now() + forMs * 1000
  const parts = fence === undefined ? {} : { fence: String(fence) }
  do {
    // The moment first: what is certain afterwards was so then.
    const moment = hands.now()
    if (!certain()) return
    operation.activeSince(moment, parts)
    await new Promise((resolve) => setTimeout(resolve, 4))
  } while (hands.now() < until)
}

/** Whether a lease is certainly held. */
export function held(lease: Lease): () => boolean {
  return () => {
    try {
      lease.assertHeld()
      return true
    } catch {
      return false
    }
  }
}

/** Does something while it holds what it was granted, and releases it. */
export async function whileHeld<T>(
  operation: Operation,
  granted: Pick<Parts, 'fence'>,
  work: () => Promise<T>,
  giveBack: () => Promise<unknown>,
): Promise<T> {
  operation.tell('granted', granted)
  try {
    return await work()
  } finally {
    operation.tell('released')
    await giveBack()
  }
}

/** The same under a lease of Lockstep. */
export async function underLease<T>(
  { lockstep, ttlMs, signal }: WorkerTools,
  operation: Operation,
  name: Key,
  options: Pick<LeaseOptions, 'permits' | 'waitMs'>,
  work: (lease: Lease) => Promise<T>,
): Promise<T> {
  // code: lockstep
  const lease = await lockstep.leases.acquire(name, { ...options, ttlMs, signal, holder: operation.id })
  return whileHeld(
    operation,
    { fence: String(lease.fence) },
    () => work(lease),
    () => lease.release(),
  )
  // code: end
}

/** A transaction by hand on a pool: what those do who do without. */
export async function byHand<T>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<T>,
  begin: string = BEGIN,
): Promise<T> {
  const client = await pool.connect()
  let broken = false
  try {
    await client.query(begin)
    const result = await work(client)
    await client.query(COMMIT)
    return result
  } catch (error) {
    await client.query(ROLLBACK).catch(() => (broken = true))
    throw error
  } finally {
    client.release(broken)
  }
}
