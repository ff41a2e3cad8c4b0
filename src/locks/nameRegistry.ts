import { AsyncResource } from 'node:async_hooks'
import {
  codeOf,
  type Connection,
  type Driver,
  FEATURE_NOT_SUPPORTED,
  INSUFFICIENT_PRIVILEGE,
  INVALID_SCHEMA_NAME,
  isSqlState,
  READ_ONLY_TRANSACTION,
  type SilenceWatch,
  UNDEFINED_TABLE,
} from '../postgres/index.ts'
import { recordNames, trimNames } from './lockList.sql.ts'

/** The bounds of the registry. */
export interface NameLimits {
  /** Names that wait to be written; what is beyond is dropped, and seen again later. */
  readonly maxPending: number
  readonly maxBatch: number
  /** From a first new name to the writing. */
  readonly soonMs: number
  /** From one writing to the next. */
  readonly everyMs: number
  /** How long nothing is written after the server denied permission. */
  readonly pauseMs: number
  /** How many names the table keeps. */
  readonly keep: number
  /** About one in this many writes checks whether there are too many names. */
  readonly trimEvery: number
}

const LIMITS: NameLimits = {
  maxPending: 5000,
  maxBatch: 1000,
  soonMs: 50,
  everyMs: 500,
  pauseMs: 5 * 60_000,
  keep: 50_000,
  trimEvery: 5000,
}

/** How many names are deleted at a time, so that it never takes long. */
const TRIM_MOST = 20_000

/** After this many failed writes the names are dropped. Their keys are seen again after some minutes. */
const MAX_FAILURES = 8

/** Trying again will not help: no right, no table, a role that only reads, a standby. */
const HOPELESS: ReadonlySet<string | undefined> = new Set([
  INSUFFICIENT_PRIVILEGE,
  UNDEFINED_TABLE,
  INVALID_SCHEMA_NAME,
  READ_ONLY_TRANSACTION,
  FEATURE_NOT_SUPPORTED,
])

/**
 * Writes down which key a number stands for, so that people read names. In the background: on a connection that no caller
 * waits for, never in a caller's transaction, and never so that a caller receives a failure or a process stays for it.
 */
export class NameRegistry {
  readonly #driver: Driver
  readonly #schema: string
  readonly #silence: SilenceWatch
  readonly #isReady: () => boolean
  readonly #limits: NameLimits
  readonly #pending = new Map<bigint, string>()
  /** In the context of the constructor: a timer keeps the context in which it is set, and with it the caller's transaction. */
  readonly #arm: (delayMs: number) => void
  #timer: NodeJS.Timeout | undefined
  #busy = false
  #writing: Promise<void> | undefined
  #closed = false
  #failures = 0
  #lastAt = -Infinity
  #pausedUntil = -Infinity

  /** `schema` is quoted. Before `isReady` nothing is sent: the table might not exist yet. */
  constructor(
    driver: Driver,
    schema: string,
    silence: SilenceWatch,
    isReady: () => boolean,
    limits: Partial<NameLimits> = {},
  ) {
    this.#driver = driver
    this.#schema = schema
    this.#silence = silence
    this.#isReady = isReady
    this.#limits = { ...LIMITS, ...limits }
    this.#arm = AsyncResource.bind((delayMs: number) => {
      this.#timer = setTimeout(() => void this.#flush(), delayMs)
      this.#timer.unref()
    })
  }

  /** A key that this process has not seen lately. Costs its caller next to nothing. */
  note(id: bigint, key: string): void {
    if (this.#closed || this.#pending.size >= this.#limits.maxPending) return
    const now = performance.now()
    if (now < this.#pausedUntil) return
    this.#pending.set(id, key)
    if (this.#timer !== undefined || this.#busy) return
    this.#arm(Math.max(this.#limits.soonMs, this.#lastAt + this.#limits.everyMs - now))
  }

  /** Begins nothing any more, and waits for what is being written. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#pending.clear()
    await this.#writing
  }

  /** Never throws. */
  async #flush(): Promise<void> {
    this.#timer = undefined
    this.#busy = true
    this.#lastAt = performance.now()
    try {
      const written = this.#mayConnect() && (await this.#write())
      this.#failures = written ? 0 : this.#failures + 1
    } catch (error) {
      this.#failures++
      if (HOPELESS.has(codeOf(error))) {
        this.#pausedUntil = performance.now() + this.#limits.pauseMs
        this.#pending.clear()
      }
    }
    this.#busy = false
    if (this.#failures > MAX_FAILURES) {
      this.#failures = 0
      this.#pending.clear()
    }
    if (this.#pending.size === 0 || this.#closed) return
    this.#arm(this.#limits.everyMs * 2 ** Math.max(0, this.#failures - 1))
  }

  /**
   * At first only a connection that lies idle is good enough. A process whose only connection holds the lock has none: after a
   * moment the pool may open one more, if no caller waits for it.
   */
  #mayConnect(): boolean {
    if (!this.#isReady()) return false
    return this.#driver.hasIdle() || (this.#failures > 0 && this.#driver.hasCapacity())
  }

  async #write(): Promise<boolean> {
    const connection = await this.#driver.connect()
    if (this.#closed) {
      connection.release()
      return false
    }
    const sending = this.#send(connection)
    this.#writing = sending.catch(() => undefined)
    await sending
    return true
  }

  async #send(connection: Connection): Promise<void> {
    const { maxBatch, keep, trimEvery } = this.#limits
    const batch = [...this.#pending].slice(0, maxBatch).toSorted(([a], [b]) => (a < b ? -1 : 1))
    try {
      await this.#silence.script(connection, recordNames(this.#schema, batch))
      for (const [id] of batch) this.#pending.delete(id)
      // By chance and not by counting: processes that live for a moment only would never count far enough.
      if (Math.random() * trimEvery < batch.length) {
        await this.#silence.script(connection, trimNames(this.#schema, keep, TRIM_MOST)).catch((error: unknown) => {
          if (!isSqlState(error)) throw error
        })
      }
      connection.release()
    } catch (error) {
      // What the server refused, it has rolled back.
      if (isSqlState(error)) connection.release()
      else connection.destroy()
      throw error
    }
  }
}
