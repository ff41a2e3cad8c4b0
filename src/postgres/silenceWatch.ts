import type { Connection, StatementResult } from './connection.ts'

/** A message whose answer is still to come. */
export interface Pending {
  readonly connection: Connection
  deadline: number
  readonly onSilence: (() => void) | undefined
  /** Whether the deadline is the waiter's, and not the end of silence. */
  limited: boolean
  /** Whether the connection was destroyed because the caller would not wait any longer; the silence alone says nothing yet. */
  outOfTime: boolean
}

/** Who waits for an answer. */
export interface Waiter {
  /** True once it does not want the answer any more: looked at every quarter of a second. */
  readonly aborted: boolean
}

/** Its neighbors in the list of all; undefined at the ends, and both where it is in no list. */
interface Listed extends Pending {
  readonly waiter: Waiter | undefined
  listed: boolean
  before: Listed | undefined
  after: Listed | undefined
}

/** The shortest pause between two looks, unless a deadline is nearer. */
const MAX_LOOK_MS = 250

/**
 * How long an answer that the caller does not wait for any more may still take. One that comes leaves a connection that can be used
 * again; without one its state is not known.
 */
export const GRACE_MS = 75

/**
 * Destroys connections that have been silent for too long; what waits for an answer on them fails then. One timer for all: a
 * timer for each message would be a good part of a transaction's cost. A list and not a Set: one that things go into and out of all
 * the time is made again and again, each remembers the next, and the garbage collector copies what all of them had held.
 */
export class SilenceWatch {
  readonly silenceMs: number
  #first: Listed | undefined
  #timer: NodeJS.Timeout | undefined
  #lookAt = Infinity

  constructor(silenceMs: number) {
    this.silenceMs = silenceMs
  }

  /**
   * Begins to watch; `mayTakeMs` is what the server may take before it has to answer. With `onSilence` that is called instead, once, and
   * again after `goOn`. `withinMs` is how long the waiter waits for the answer in any case.
   */
  start(connection: Connection, mayTakeMs = 0, onSilence?: () => void, withinMs = Infinity, waiter?: Waiter): Pending {
    const now = performance.now()
    const silentMs = mayTakeMs + this.silenceMs
    const limited = withinMs < silentMs
    const deadline = now + (limited ? withinMs : silentMs)
    const after = this.#first
    const pending: Listed = {
      connection,
      deadline,
      onSilence,
      outOfTime: false,
      waiter,
      limited,
      listed: true,
      before: undefined,
      after,
    }
    if (after !== undefined) after.before = pending
    this.#first = pending
    if (deadline < this.#lookAt) this.#lookBy(Math.min(deadline, now + MAX_LOOK_MS), now)
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
    const now = performance.now()
    pending.deadline = now + this.silenceMs
    if (pending.deadline < this.#lookAt) this.#lookBy(Math.min(pending.deadline, now + MAX_LOOK_MS), now)
    return true
  }

  /** Its waiter waits no longer than that, from now. */
  hurry(pending: Pending, withinMs: number): void {
    const now = performance.now()
    shorten(pending as Listed, now + withinMs)
    if (pending.deadline < this.#lookAt) this.#lookBy(pending.deadline, now)
  }

  /** Sends one message and watches over it. */
  async script(connection: Connection, text: string, mayTakeMs = 0, withinMs = Infinity): Promise<StatementResult[]> {
    const pending = this.start(connection, mayTakeMs, undefined, withinMs)
    try {
      return await connection.script(text)
    } finally {
      this.stop(pending)
    }
  }

  #lookBy(at: number, now: number): void {
    clearTimeout(this.#timer)
    this.#lookAt = at
    this.#timer = setTimeout(() => this.#look(), Math.ceil(at - now)).unref()
  }

  #look(): void {
    const now = performance.now()
    let next = Infinity
    let late: Listed[] | undefined
    for (let pending = this.#first; pending !== undefined; pending = pending.after) {
      if (pending.waiter?.aborted === true) shorten(pending, now + GRACE_MS)
      if (pending.deadline <= now) (late ??= []).push(pending)
      else next = Math.min(next, pending.deadline)
    }
    this.#timer = undefined
    this.#lookAt = Infinity
    if (this.#first !== undefined) this.#lookBy(Math.min(next, now + MAX_LOOK_MS), now)
    if (late !== undefined) setImmediate(() => this.#giveUp(late))
  }

  /**
   * A turn of the event loop after their deadline was seen: where this process itself was held up, their answers may have come meanwhile
   * and are read first. A list of its own: what is done about one can end others.
   */
  #giveUp(late: readonly Listed[]): void {
    for (const pending of late) {
      if (!pending.listed) continue
      if (pending.onSilence === undefined) {
        this.stop(pending)
        pending.outOfTime = pending.limited
        pending.connection.destroy(true)
      } else {
        pending.deadline = Infinity
        pending.onSilence()
      }
    }
  }
}

function shorten(pending: Listed, deadline: number): void {
  if (deadline >= pending.deadline) return
  pending.deadline = deadline
  pending.limited = true
}
