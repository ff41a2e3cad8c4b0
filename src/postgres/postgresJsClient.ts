import { DriverUnsupportedError } from '../errors.ts'

/** What postgres.js knows of the server's process; it changes when the connection is opened again. */
export interface Backend {
  readonly pid?: number | null
}

/** A query of postgres.js. It is sent by its handler, once it is awaited. */
export interface PostgresJsQuery extends Promise<unknown> {
  handler: (query: PostgresJsQuery) => unknown
  /** One function for all queries of a pool. */
  readonly canceller: unknown
  /** Where it was sent. */
  readonly state: Backend | null
  strings: readonly string[]
  reject(error: unknown): void
  /** Has rows come as lists of bytes. */
  raw(): PostgresJsQuery
}

/** A `sql` of postgres.js that stands for one connection: reserved, or inside `sql.begin()`. */
export interface PostgresJsClient {
  unsafe(text: string, values?: never[], options?: object): PromiseLike<unknown>
  /** A parameter of the type with this number. */
  typed(value: never, type: number): unknown
}

/** A `sql` of postgres.js reserved from its pool. */
export interface PostgresJsReserved extends PostgresJsClient {
  release(): void
}

/** The part of a postgres.js `sql` that Lockstep uses. */
export interface PostgresJs extends PostgresJsClient {
  reserve(): Promise<PostgresJsReserved>
  file(path: string, ...rest: unknown[]): PromiseLike<unknown>
  readonly options: {
    readonly max?: number
    readonly transform?: unknown
    readonly host?: unknown
    readonly port?: unknown
    readonly database?: unknown
    /** In seconds. */
    readonly connect_timeout?: unknown
    /** Called when a connection has closed, after its own `onclose`, and before it is opened again. */
    onclose?: ((id: number) => unknown) | undefined
  }
  /** On a connection of its own, which it restores by itself. */
  readonly listen: PostgresJsListen
}

interface PostgresJsListen {
  (
    channel: string,
    heard: (payload: string) => void,
    listening?: () => void,
  ): PromiseLike<{ unlisten(): Promise<void> }>
  /** What it listens on, from the first call on: a pool of one connection, with the same options. */
  readonly sql?: PostgresJs
}

/** What postgres.js hands to `onexecute`, the hook by which its own `begin()` learns which connection it got. */
export interface PhysicalConnection {
  /** What the option `onclose` is called with. */
  readonly id: number
  onclose?: ((error: unknown) => void) | null
  /** Called when everything that was sent is answered, where the connection is not the pool's to give. */
  reserved?: ((() => void) & { release?: boolean }) | null
  /** The list of all connections that are in the same state. */
  queue: {
    readonly length: number
    push(connection: object): unknown
    remove(connection: object): unknown
    shift(): unknown
  }
  /** Started when, and only when, the connection has gone to the list of the idle ones. */
  readonly idleTimer: { start(): void }
  /** Sends a query. False where the next one has to wait until all are answered. */
  execute(this: void, query: object): unknown
  /** Opens it, or opens it again, for a query. */
  connect(this: void, query: object): void
  terminate(): void
  /** Called by `sql.end()`, which waits for what it returns. */
  end(this: void): Promise<unknown>
}

/** The error for a postgres.js whose inside is another than the one that was tried. */
export function unsupported(): DriverUnsupportedError {
  return new DriverUnsupportedError('This version of postgres.js does not report which connection ran a query.', {
    advice: 'Use postgres 3.4, or pg.',
  })
}
