/** What an event carries here. Every sink looks at each payload: who parses late must parse as well. */
export interface Payload {
  readonly id: number
}

/** The sink that all have in common: it counts. */
export type Take = (payload: Payload) => void

export type Purpose = 'enqueue' | 'deliver'

/**
 * One way to get events from a transaction to a sink, in a process of its own. `number` identifies the event and determines its key:
 * keys in turn, over 1,000 of them.
 */
export interface Contender {
  /** Creates what it needs in an empty database: to be written to as fast as it goes, or to be delivered from. */
  install(purpose: Purpose): Promise<void>
  /** One event in a transaction of its own; called for as many at a time as there are connections. */
  enqueue(number: number): Promise<unknown>
  /** Many events, by the fastest way that it has. */
  fill(count: number): Promise<number>
  /** Delivers until the function that it gives is called. */
  deliver(take: Take): Promise<() => Promise<void>>
  /**
   * Handles what waits until the function that it gives is called: each event has its effect in the database, `CONCURRENCY` at a time, those
   * of a key in order. Left out by those with which consumers are not compared.
   */
  consume?(handled: () => void): Promise<() => Promise<void>>
  close(): Promise<void>
}

/** So much is handled at once, in one process. */
export const CONCURRENCY = 8

/** How a contender is made, and what is to be known of it. */
export interface ContenderKind {
  /** What it promises of the order of one key's events. */
  readonly order: string
  /** How it is set, and why so: printed with `--verbose`. */
  readonly settings: string
  /** It cannot be drained: enqueuing alone is compared with it. */
  readonly enqueueOnly?: true
  /** So many events at most in one turn of draining: what takes long to fill says as much with fewer. */
  readonly most?: number
  open(url: string): Promise<Contender>
}
