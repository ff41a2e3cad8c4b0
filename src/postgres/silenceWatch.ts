import type { Connection } from './connection.ts'

/** A message whose answer is still to come. */
export interface Pending {
  readonly connection: Connection
  deadline: number
  readonly onSilence: (() => void) | undefined
}

/** Its neighbours in the list of all; undefined at the ends, and both where it is in no list. */
interface Listed extends Pending {
  listed: boolean
  before: Listed | undefined
  after: Listed | undefined
}

/** Looking more often than this would cost more than it tells. */
const MAX_LOOK_MS = 250

/**
 * Destroys connections that have been silent for too long; what waits for an answer on them fails then. One timer for all: a
 * timer for each message would be a good part of a transaction's cost. A list and not a Set: one that things go into and out of all
 * the time is made anew again and again, each remembers the next, and the garbage collector copies what all of them had held.
 */
export class SilenceWatch {
  readonly silenceMs: number
  #first: Listed | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(silenceMs: number) {
    this.silenceMs = silenceMs
  }

  /**
   * Begins to watch; `mayTakeMs` is what the server may take before it has to answer. With `onSilence` that is called instead, once, and
   * again after `goOn`.
   */
  start(connection: Connection, mayTakeMs = 0, onSilence?: () => void): Pending {
    const deadline = performance.now() + mayTakeMs + this.silenceMs
    const after = this.#first
    const pending: Listed = { connection, deadline, onSilence, listed: true, before: undefined, after }
    if (after !== undefined) after.before = pending
    this.#first = pending
    if (this.#timer === undefined) this.#look()
    return pending
  }

  stop(pending: Pending): void {
    const { listed, before, after } = pending as Listed
    if (!listed) return
    if (before === undefined) this.#first = after
    else before.after = after
    if (after !== undefined) after.before = before
    const ended = pending as Listed
    ended.listed = false
    ended.before = ended.after = undefined
  }

  /** Watches on. False where nothing is waited for any more. */
  goOn(pending: Pending): boolean {
    if (!(pending as Listed).listed) return false
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
        for (const pending of this.#late(now)) {
          if (!pending.listed) continue
          if (pending.onSilence === undefined) {
            this.stop(pending)
            pending.connection.destroy()
          } else {
            pending.deadline = Infinity
            pending.onSilence()
          }
        }
        this.#timer = undefined
        if (this.#first !== undefined) this.#look()
      },
      Math.min(MAX_LOOK_MS, this.silenceMs / 4),
    )
    this.#timer.unref()
  }

  /** A list of its own: what is done about one can end others. */
  #late(now: number): Listed[] {
    const late: Listed[] = []
    for (let pending = this.#first; pending !== undefined; pending = pending.after) {
      if (pending.deadline <= now) late.push(pending)
    }
    return late
  }
}
