import type { Entry, Form } from './history.ts'

/** What a worker is started with. */
export interface WorkerPlan {
  /** How the history calls it. */
  readonly by: string
  readonly driver: 'pg' | 'postgres'
  /** The way it has: straight, through the proxy, through the pooler. */
  readonly url: string
  /** Straight to the server, for sessions with settings of their own, which a pooler would not keep. */
  readonly directUrl: string
  readonly poolSize: number
}

/** What a round is. */
export interface RoundPlan {
  readonly number: number
  readonly form: Form
  readonly seed: number
  readonly scenarios: readonly string[]
  /** Of each scenario in each worker, in place of its own number. */
  readonly lanes?: number
  /** All lanes of all workers begin their next operation at the next multiple of this. Absent: each rests for some milliseconds. */
  readonly beatMs?: number
  /** Of the machine's clock. */
  readonly startedAt: number
  readonly ttlMs: number
}

export type ToWorker =
  | { readonly round: RoundPlan }
  | { readonly answer: number; readonly value?: unknown }
  /** The number of the round. */
  | { readonly drain: number }
  | { readonly close: number }
  /** By how much its clock is wrong from now on. */
  | { readonly clockMs: number }
  /** Whether its statements have next to no time. */
  | { readonly timid: boolean }

export type FromWorker =
  | { readonly ready: true }
  | { readonly entry: Entry }
  | { readonly ask: number; readonly round: number; readonly service: string; readonly question: unknown }
  | { readonly drained: number }
  | { readonly closed: number; readonly connectionsOut: number }
