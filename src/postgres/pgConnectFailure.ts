import type { LockstepError } from '../errors.ts'
import { connectFailure, poolExhausted, rejected, unreachable } from './connectFailure.ts'
import { codeOf } from './sqlstate.ts'

/** The part of a `pg` pool that says why it gave no client. */
export interface PgPoolState {
  readonly options?: { readonly max?: number; readonly connectionTimeoutMillis?: number | undefined }
  readonly idleCount?: number
  readonly totalCount?: number
  on?(event: 'error' | 'acquire' | 'connect' | 'remove', listener: (given?: unknown) => void): unknown
  on?(event: 'release', listener: (error?: unknown, client?: unknown) => void): unknown
}

/** `pg`'s own default for a pool's size. */
export const PG_DEFAULT_POOL_SIZE = 10

/** What a call of `pool.connect()` began with. */
export interface PgConnect {
  readonly startedAt: number
  /** Whether the pool opens a client for this very call; otherwise the call waits for one. */
  readonly opens: boolean
}

const pools = new WeakMap<PgPoolState, PgPoolWatch>()

/**
 * Watches one pool by its events. Its counters do not tell a client that is in use from one that is being opened: both count in
 * `totalCount`. That difference is the one between an exhausted pool and a server that cannot be reached.
 */
export class PgPoolWatch {
  readonly size: number
  readonly #pool: PgPoolState
  /** Clients that are checked out. */
  #inUse: number
  /** Whether a client was ever given out: then the pool's configuration is good. */
  #everConnected: boolean
  #probing: Promise<LockstepError | undefined> | undefined

  private constructor(pool: PgPoolState) {
    const { totalCount = 0, idleCount = 0 } = pool
    this.#pool = pool
    this.size = pool.options?.max ?? PG_DEFAULT_POOL_SIZE
    this.#inUse = totalCount - idleCount
    this.#everConnected = idleCount > 0
    // A pool without an error listener ends the process when the server closes one of its idle connections. The pool has taken that
    // connection out by itself, and the next caller gets a new one: there is nothing to do.
    pool.on?.('error', () => undefined)
    pool.on?.('acquire', () => {
      this.#inUse++
      this.#everConnected = true
    })
    pool.on?.('release', () => void this.#inUse--)
  }

  /** Two Locksteps on one pool share it. */
  static of(pool: PgPoolState): PgPoolWatch {
    let watch = pools.get(pool)
    if (watch === undefined) pools.set(pool, (watch = new PgPoolWatch(pool)))
    return watch
  }

  /** Whether all clients that the pool may have are in use, and none is being opened. */
  isExhausted(): boolean {
    const { totalCount = 0, idleCount = 0 } = this.#pool
    const taken = totalCount - idleCount
    // Those that were being opened when the watch began were counted twice.
    this.#inUse = Math.min(this.#inUse, taken)
    return totalCount >= this.size && idleCount === 0 && this.#inUse >= taken
  }

  begin(): PgConnect {
    const { totalCount = 0, idleCount = 0 } = this.#pool
    return { startedAt: performance.now(), opens: totalCount < this.size && idleCount === 0 }
  }

  /** Gives the error of a `pool.connect()` as Lockstep's, at once if no probe is needed. */
  failure(cause: unknown, begun: PgConnect, notify: (failure: LockstepError) => void): void {
    const failure = this.#known(cause, begun)
    if (failure !== undefined) return notify(failure)
    this.#probing ??= probe(this.#pool).finally(() => (this.#probing = undefined))
    void this.#probing.then((refusal) => notify(refusal ?? unreachable(cause)))
  }

  #known(error: unknown, { startedAt, opens }: PgConnect): LockstepError | undefined {
    if (codeOf(error) !== undefined) return connectFailure(error)
    const waitedMs = performance.now() - startedAt
    const timeoutMs = this.#pool.options?.connectionTimeoutMillis
    // A timer can be early by the part of a millisecond that it rounds away.
    const timedOut = timeoutMs !== undefined && timeoutMs > 0 && waitedMs >= timeoutMs - 1
    if (timedOut) return !opens && this.isExhausted() ? poolExhausted(waitedMs, error) : unreachable(error)
    return this.#everConnected ? unreachable(error) : undefined
  }
}

/** How long a probe may take. */
const PROBE_MS = 3000

/** The requests for a password, as pg's connection calls them. */
const PASSWORD_REQUESTS = [
  'authenticationCleartextPassword',
  'authenticationMD5Password',
  'authenticationSASL',
] as const

/** The part of a `pg` client that a probe looks at. The native one has no `connection`. */
interface PgProbe {
  connect(callback: (error: Error | null | undefined) => void): void
  end(): unknown
  on(event: 'error', listener: () => void): unknown
  readonly ssl?: unknown
  readonly connection?: {
    once(event: string, listener: () => void): unknown
    readonly stream: { readonly destroyed: boolean; destroy(): unknown }
  }
}

/**
 * pg has no code for what it refuses by itself, such as a password that was never given or a server without TLS, and none for a
 * connection that was closed before it was open. The socket distinguishes them: pg refuses on one that is still open. A pool does not
 * show it, so one client of its kind is opened beside it. Gives the error where trying again would not help.
 */
function probe(pool: PgPoolState): Promise<LockstepError | undefined> {
  const { Client, options } = pool as { Client?: new (options: unknown) => PgProbe; options?: unknown }
  if (Client === undefined) return Promise.resolve(undefined)
  return new Promise((resolve) => {
    const client = new Client(options)
    const { connection } = client
    let asked = false
    const settle = (verdict: LockstepError | undefined): void => {
      clearTimeout(timer)
      resolve(verdict)
      connection?.stream.destroy()
    }
    const timer = setTimeout(() => settle(undefined), PROBE_MS)
    client.on('error', () => undefined)
    for (const request of PASSWORD_REQUESTS) connection?.once(request, () => (asked = true))
    client.connect((error) => {
      if (error === null || error === undefined) {
        void client.end()
        clearTimeout(timer)
        return resolve(undefined)
      }
      const refusedByPg = codeOf(error) === undefined && connection?.stream.destroyed === false
      const reason = asked ? 'authentication' : client.ssl ? 'tls' : 'settings'
      const verdict = refusedByPg ? rejected(reason, error) : connectFailure(error)
      settle(verdict.code === 'LOCKSTEP_CONNECTION_REJECTED' ? verdict : undefined)
    })
  })
}
