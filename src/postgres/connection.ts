import { ConnectionLostError, TransactionEndedError } from '../errors.ts'
import type { VirtualSession } from './virtualClient.ts'

/** What one statement returned. */
export interface StatementResult<Row = Record<string, unknown>> {
  readonly rows: Row[]
  /** Rows returned or changed. */
  readonly rowCount: number
  /** The server's command tag, first word: SELECT, COMMIT, ROLLBACK, … */
  readonly command: string
}

/** A row of a statement of our own: each value as the server writes it, whatever the pool's owner has the driver make of it. */
export type TextRow = Record<string, string | null>

/** A value for a statement of our own, sent as text: the statement says of which type it is. */
export type OwnValue = string | number | bigint | boolean | null | undefined | Uint8Array | readonly OwnValue[]

/** A statement to be sent, with its parameters. */
export interface Statement {
  readonly text: string
  readonly values: readonly unknown[]
  /** Ours, and not the caller's: its values are `OwnValue`s. */
  readonly own?: boolean
  /** One of a few that are sent again and again: the server may keep it, where the connection is to one server process. */
  readonly recurs?: boolean
}

/** A statement of our own that is sent again and again. Its parameters are numbers. */
export interface OwnStatement extends Statement {
  readonly values: readonly bigint[]
  readonly recurs: true
}

/** What came of a COMMIT. */
export interface Commit {
  /** The tag that it was answered with, COMMIT or ROLLBACK; '' where a statement before it failed and it was never run. */
  readonly command: string
  /** Why it was never run; the transaction may still be open, failed. */
  readonly failure?: unknown
  /** Whether what was to be committed is not the transaction that was opened: other code has ended that. */
  readonly endedEarly?: boolean
}

/**
 * What is known of one physical connection until it is closed. A direct connection dies with its server, so what was
 * read through it once (the server epoch) need not be read again.
 */
export interface ConnectionMemory {
  serverEpoch?: string
  pooled?: boolean
  /** What the server process keeps of ours, by its text. */
  kept?: Map<string, KeptStatement>
  /** One for all connections of a pool: a caller that makes one of them forget what it keeps does so with all. */
  readonly keeping?: { forgotten: boolean }
}

/** A statement that was given to a server process under a name. */
export interface KeptStatement {
  /** Another one each time that it is given: the state of one that failed is unknown. */
  name: string
  /** Whether it is known to be there. */
  there: boolean
  /** How often it was given. */
  given: number
}

/** What the server says beside its answer. */
export interface Notice {
  readonly message?: string | undefined
  /** The function of the server that says it. The text depends on the server's language. */
  readonly routine?: string | undefined
}

/** Hears how a statement ended, before its caller does. A callback: a promise more would cost every statement a percent. */
export interface QueryListener {
  succeeded(): void
  /** Returns the error that the caller gets. */
  failed(error: unknown): unknown
}

/**
 * One connection in our hands. The two drivers differ in everything but this.
 *
 * What the pool's owner has configured, such as names in camel case or types of its own, is meant for the owner's statements: `query()`
 * goes by it. `script()`, `read()` and `ask()` are for Lockstep's own statements and do not.
 */
export interface Connection {
  /**
   * One simple-query message with any number of statements of our own: one round trip. Each statement that returns rows has a result of
   * its own, in their order. Of those without rows nothing can be counted on but that the last result has the last command tag:
   * postgres.js lets them share the result before them.
   */
  script(text: string): Promise<StatementResult<TextRow>[]>
  /** One statement of our own, with parameters. */
  read(text: string, values?: readonly OwnValue[]): Promise<StatementResult<TextRow>>
  /** Values of ours for a statement whose rows are the caller's. */
  ownValues(values: readonly OwnValue[]): unknown[]
  /** One statement of the caller's, with parameters. */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
    listener?: QueryListener,
  ): Promise<StatementResult<Row>>
  /**
   * Several statements in one round trip, of which the last one gives one row of text, with these columns. The server process keeps those that
   * have parameters. Undefined where `script()` is as quick. Rejects with a StatementForgottenError where the same may be asked once more,
   * after a rollback.
   */
  ask(statements: readonly OwnStatement[], columns: readonly string[]): Promise<StatementResult<TextRow>[]> | undefined
  /**
   * Statements whose rows are not needed, and COMMIT behind them, in one round trip where the driver can. Rejects where COMMIT may have
   * reached the server and was not answered well. With a `check`, a statement from `failUnlessSame()`, that goes before all of them.
   */
  commit(closing: readonly Statement[], check?: string): Promise<Commit>
  /**
   * Has every notice and warning of this connection passed on, until the answer is called. Undefined where the driver does not tell from
   * which connection one comes (postgres.js).
   */
  hearing?(heard: (notice: Notice) => void): () => void
  /** True once the connection's end was seen. From then on nothing can be sent: the driver may have opened another connection in its place. */
  readonly lost: boolean
  /** Called once when the end is seen, with the server's last words where it had any. One at a time. */
  onLost: ((cause?: unknown) => void) | undefined
  /** The process id of the protocol's key data; not the backend's behind a pooler. Known after the first answer at the latest. */
  readonly protocolPid: number | undefined
  /** Undefined while the driver does not tell which physical connection this is. */
  readonly memory: ConnectionMemory | undefined
  /** Where the driver connects to: hosts, ports and database, without user and password. Undefined where it does not show. */
  readonly route?: string | undefined
  /** The driver's own client. */
  readonly client: unknown
  /** A client of the driver's kind, for callers, that sends through the session. */
  virtualClient(session: VirtualSession): unknown
  /** Whether the driver refused a statement before it sent it. Only where that is certain. */
  neverSent(error: unknown, values: readonly unknown[]): boolean
  /** Back to the pool, fit for the next user. */
  release(): void
  /** Removes it from the pool: its state is not known. `silent`: it did not answer, and other connections of the pool might not either. */
  destroy(silent?: boolean): void
}

/** What ends a connect that is never answered. */
export interface ConnectLimit {
  /** The driver's option, as it is to be set. */
  readonly option: string
  /** What it is set to; Infinity: nothing. */
  readonly limitMs: number
  /** An answer that has not come for this long will not come any more. */
  readonly silenceMs: number
  /** Whether Lockstep gives up those that take longer, whichever caller waits for them. */
  readonly watched: boolean
}

/** A pool of one of the drivers. */
export interface Driver {
  readonly name: 'pg' | 'postgres'
  /** How many connections the pool opens at most. */
  readonly poolSize: number
  readonly connects: ConnectLimit
  /** Whether a connection can be had at once; false where the driver does not tell. */
  hasIdle(): boolean
  /** Whether the pool would open another connection and no caller waits for it, if the driver reports that. */
  hasCapacity(): boolean
  /** Whether the pool has all its connections in use and opens none, if the driver reports that. */
  isExhausted(): boolean
  /** Rejects with a `LockstepError` only: see connectFailure.ts. */
  connect(): Promise<Connection>
  /**
   * Listens on a channel, on a connection kept for it. `heard` gets the payload, or undefined where calls may have been missed; `lost`
   * is called once when the connection is gone. The answer stops it.
   */
  listen(channel: string, heard: (payload: string | undefined) => void, lost: () => void): Promise<() => Promise<void>>
  /** Wraps a client on which the caller opened a transaction. Release and destroy leave it alone. */
  wrap(client: unknown): Connection
}

/** The error for using a connection after it was released: by now it may serve another caller. */
export function alreadyReturned(): TransactionEndedError {
  return new TransactionEndedError('The transaction of this connection has ended.', {
    advice: 'Await everything inside the function; start a new transaction for what comes after it.',
  })
}

/** The error for using a connection after its end was seen. */
export function alreadyLost(cause?: unknown): ConnectionLostError {
  return new ConnectionLostError('The connection was lost.', {
    advice: 'Do not catch this error in the function: nothing was written, and the transaction is retried.',
    cause,
  })
}
