import type { Connection } from './connection.ts'

/** A message whose answer is still to come. */
export interface Pending {
  readonly connection: Connection
  deadline: number
  readonly onSilence: (() => void) | undefined
}

/** Looking more often than this would cost more than it tells. */
const MAX_LOOK_MS = 250

/**
 * Destroys connections that have been silent for too long; what waits for an answer on them fails then. One timer for all: a
 * timer for each message would be a good part of a transaction's cost.
 */
export class SilenceWatch {
  readonly silenceMs: number
  readonly #pending = new Set<Pending>()
  #timer: NodeJS.Timeout | undefined

  constructor(silenceMs: number) {
    this.silenceMs = silenceMs
  }

  /**
   * Begins to watch; `mayTakeMs` is what the server may take before it has to answer. With `onSilence` that is called instead, once, and
   * again after `goOn`.
   */
  start(connection: Connection, mayTakeMs = 0, onSilence?: () => void): Pending {
    const pending = { connection, deadline: performance.now() + mayTakeMs + this.silenceMs, onSilence }
    this.#pending.add(pending)
    if (this.#timer === undefined) this.#look()
    return pending
  }

  stop(pending: Pending): void {
    this.#pending.delete(pending)
  }

  /** Watches on. False where nothing is waited for any more. */
  goOn(pending: Pending): boolean {
    if (!this.#pending.has(pending)) return false
    pending.deadline = performance.now() + this.silenceMs
    return true
  }

  /** Sends one message and watches over it. */
  async script(
    connection: Connection,
    text: string,
    mayTakeMs = 0,
  ): Promise<Awaited<ReturnType<Connection['script']>>> {
    const pending = this.start(connection, mayTakeMs)
    try {
      return await connection.script(text)
    } finally {
      this.stop(pending)
    }
  }

  #look(): void {
    this.#timer = setTimeout(
      () => {
        const now = performance.now()
        for (const pending of this.#pending) {
          if (pending.deadline > now) continue
          if (pending.onSilence === undefined) {
            this.#pending.delete(pending)
            pending.connection.destroy()
          } else {
            pending.deadline = Infinity
            pending.onSilence()
          }
        }
        this.#timer = undefined
        if (this.#pending.size > 0) this.#look()
      },
      Math.min(MAX_LOOK_MS, this.silenceMs / 4),
    )
    this.#timer.unref()
  }
}
