import type { Key } from '../locks/index.ts'
import type { Lease, LeaseOptions } from '../leases/index.ts'
import type { EventMap } from '../events/index.ts'
import type { Transaction, TransactionOptions } from '../transactions/index.ts'
import type { UnusableBody } from './fingerprint.ts'

/** What the handlers need of a Lockstep. */
export interface HttpLockstep<Client = unknown, Events extends object = EventMap> {
  readonly schema: string
  lease<T>(key: Key, options: LeaseOptions, fn: (lease: Lease<Client>) => Promise<T>): Promise<T>
  transaction<T>(options: TransactionOptions, fn: (tx: Transaction<Client, Events>) => Promise<T>): Promise<T>
}

/** A header, its name in lowercase. */
export type Header = readonly [name: string, value: string]

/** An answer that can be sent as it is, in any framework. */
export interface Answer {
  readonly status: number
  readonly headers: readonly Header[]
  readonly body: Uint8Array
}

/** A request, as the guards see it. */
export interface Incoming<Request> {
  /** What the framework calls it. */
  readonly request: Request
  readonly method: string
  /** Path and query. */
  readonly path: string
  header(name: string): string | undefined
  /** The body's bytes, or why there are none to identify it by. */
  body(maxBytes: number): Promise<Uint8Array | UnusableBody>
}

/** What the handler answered, still held back. */
export interface Draft {
  /** All of it; undefined where it is larger than the guard's `wholeUpTo`. */
  whole(): Promise<Answer | undefined>
}

/** Decides whether a handler runs, and what it runs with. Give it to the handler of your framework. */
export interface Guard<Request, Given> {
  /** The most bytes of an answer that the guard has to see whole before any is sent; undefined where it may be streamed. */
  readonly wholeUpTo: number | undefined
  /** `'own'`: what the handler answered may go out. The work may be called again, after a conflict. */
  readonly handle: (incoming: Incoming<Request>, work: (given: Given) => Promise<Draft>) => Promise<Answer | 'own'>
}
