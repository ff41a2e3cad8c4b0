import type { Notice } from './connection.ts'
import type { PgPoolState } from './pgConnectFailure.ts'

/** How `pg` answers. */
export type PgCallback = (error: Error | null, result: unknown) => void

/** A notification, sent with NOTIFY. */
export interface PgNotification {
  readonly channel: string
  readonly payload?: string | undefined
}

/** A query as an object. */
export interface PgQueryConfig {
  readonly text: string
  readonly values?: unknown[]
  readonly queryMode?: 'extended'
  readonly types?: { getTypeParser(): (value: string | Buffer) => unknown }
}

/** A query that writes its own protocol messages. `pg` calls it a Submittable. */
export interface PgSubmittable {
  submit(connection: never): unknown
}

/** The part of a `pg` client that Lockstep uses. Callbacks, because `pg`'s promises are made on top of them. */
export interface PgClient {
  query(text: string, callback: PgCallback): unknown
  query(text: string, values: unknown[], callback: PgCallback): unknown
  query(config: PgQueryConfig, callback: PgCallback): unknown
  /** @internal */
  query(message: PgSubmittable, callback: PgCallback): unknown
  on(event: 'error' | 'end', listener: (error?: Error) => void): unknown
  on(event: 'notification', listener: (message: PgNotification) => void): unknown
  on(event: 'notice', listener: (notice: Notice) => void): unknown
  removeListener(event: 'error' | 'end', listener: (error?: Error) => void): unknown
  removeListener(event: 'notification', listener: (message: PgNotification) => void): unknown
  removeListener(event: 'notice', listener: (notice: Notice) => void): unknown
  readonly processID?: number | null
  readonly host?: string
  readonly port?: number
  readonly database?: string | undefined
  /** Whether pg sends queries without waiting for the answers to those before. */
  readonly pipeline?: boolean
  /** `I`: in no transaction; `T`: in one; `E`: in one that has failed. */
  getTransactionStatus?(): string | null
}

/** A `pg` client that came from a pool. */
export interface PgPoolClient extends PgClient {
  release(destroy?: boolean | Error): void
}

/** The part of a `pg` pool that Lockstep uses. */
export interface PgPool extends PgPoolState {
  connect(): Promise<PgPoolClient>
  connect(callback: (error: Error | undefined, client: PgPoolClient | undefined) => void): void
  readonly waitingCount?: number
  readonly ending?: boolean
  readonly ended?: boolean
}
