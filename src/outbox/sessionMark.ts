import { randomBytes } from 'node:crypto'
import { type Connection, connectWithin } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { askBackendPid, markSession } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'

/** With fewer connections than this, none is kept for it: two read, one listens, one renews leases. */
const MIN_POOL = 5
const CONNECT_MS = 1000
const FIRST_PAUSE_MS = 20
const LONGEST_PAUSE_MS = 5000

/**
 * Shows that this process is connected: a shared session lock on a random number, on a connection that does nothing else. The server lets go of it
 * when the session ends, and not before: a process that is stopped keeps it. One for all dispatchers of a Lockstep. Behind a pooler there is
 * none: sessions there are not those of processes.
 */
export class SessionMark {
  static readonly #all = new WeakMap<LockstepContext, SessionMark>()

  /** Named in the leases that it vouches for. Stays the same when the session is another one. */
  readonly id: string
  readonly #context: LockstepContext
  #users = 0
  #connection: Connection | undefined
  #holding: Promise<void> | undefined
  #heldSince: number | undefined
  #failures = 0
  #again: NodeJS.Timeout | undefined
  /** Whether there is a pooler in between. */
  #pooled = false

  private constructor(context: LockstepContext) {
    this.#context = context
    // As the numbers of all locks, which are hashes of 64 bits.
    this.id = String(randomBytes(8).readBigInt64BE())
  }

  static of(context: LockstepContext): SessionMark {
    let mark = this.#all.get(context)
    if (mark === undefined) this.#all.set(context, (mark = new SessionMark(context)))
    return mark
  }

  /** For how long the session has been there; 0 where there is none. */
  get heldMs(): number {
    return this.#heldSince === undefined ? 0 : performance.now() - this.#heldSince
  }

  get held(): boolean {
    return this.#heldSince !== undefined
  }

  /** Comes back when it is held, or cannot be for now. To be ended by `leave()`. */
  async want(): Promise<void> {
    this.#users++
    await this.#hold()
  }

  async leave(): Promise<void> {
    if (--this.#users > 0) return
    clearTimeout(this.#again)
    await this.#holding
    // Wanted again meanwhile.
    if (this.#users > 0) return
    const connection = this.#connection
    this.#connection = undefined
    this.#heldSince = undefined
    if (connection === undefined) return
    connection.onLost = undefined
    // The lock ends with its session, so nothing has to be unlocked.
    connection.destroy()
  }

  #hold(): Promise<void> {
    const { driver } = this.#context
    if (driver.poolSize < MIN_POOL || this.#pooled || this.held) return Promise.resolve()
    this.#holding ??= this.#connect()
      .then(
        () => void (this.#failures = 0),
        () => this.#retry(),
      )
      .finally(() => (this.#holding = undefined))
    return this.#holding
  }

  async #connect(): Promise<void> {
    const { driver, silence } = this.#context
    const connection = await connectWithin(driver, CONNECT_MS)
    const pending = silence.start(connection)
    try {
      const [row] = resultRows(await connection.script(askBackendPid()))
      this.#pooled = Number(row?.['pid']) !== connection.protocolPid
      if (this.#pooled) {
        connection.release()
        return
      }
      await connection.script(markSession(this.id))
    } catch (error) {
      connection.destroy()
      throw error
    } finally {
      silence.stop(pending)
    }
    this.#connection = connection
    this.#heldSince = performance.now()
    connection.onLost = () => {
      connection.destroy()
      this.#connection = undefined
      this.#heldSince = undefined
      this.#retry()
    }
  }

  #retry(): void {
    if (this.#users === 0) return
    clearTimeout(this.#again)
    const pauseMs = backoffMs(this.#failures++, FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
    this.#again = setTimeout(() => void this.#hold(), pauseMs).unref()
  }
}
