import { InvalidOptionError, QueueFullError } from '../errors.ts'

/** As of combined calls: bursts fit in, and what a process keeps of waiting callers stays in the tens of megabytes for one key. */
const DEFAULT_MAX_QUEUE = 10_000
/** The limit for all keys and for connections together, as a multiple of that for one key. */
const ALL = 10

/**
 * How many calls of one Lockstep can wait in this process: for one key, and in all. A call waits in one place at a time: for a caller of
 * the same key, for a connection of the pool, or until it asks the server again. One that has to wait and finds the queue full fails at
 * once, with nothing held; one that need not wait is never counted, and never refused.
 */
export class QueueLimit {
  readonly #perKey: number
  readonly #all: number
  #waiting = 0

  constructor(maxQueue = DEFAULT_MAX_QUEUE) {
    if (!Number.isInteger(maxQueue) || maxQueue < 1) {
      throw new InvalidOptionError(`maxQueue is ${String(maxQueue)}.`, { advice: 'Use a whole number above 0.' })
    }
    this.#perKey = maxQueue
    this.#all = maxQueue * ALL
  }

  /** Calls that wait now. */
  get waiting(): number {
    return this.#waiting
  }

  /** Counts a call that begins to wait; `end()` takes it back. Where too many wait, nothing is counted, and it gives the error. */
  begin(key: string | undefined, ahead: number): QueueFullError | undefined {
    if (key !== undefined && ahead >= this.#perKey)
      return queueFull(`${ahead} calls of this process wait for ${key} already.`, ahead, [key])
    if (this.#waiting >= this.#all) {
      const whose = key === undefined ? [] : [key]
      return queueFull(
        `${this.#waiting} calls of this process wait already, for keys and for connections.`,
        this.#waiting,
        whose,
      )
    }
    this.#waiting++
    return undefined
  }

  /** Counts a call that waits on. */
  goOn(): undefined {
    this.#waiting++
  }

  end(): void {
    this.#waiting--
  }
}

function queueFull(message: string, waiting: number, keys: readonly string[]): QueueFullError {
  return new QueueFullError(message, {
    advice:
      'Nothing was done for this call. Ask the caller to try again later. If it lasts: make what holds the key shorter, combine() its callers, or make the pool larger; `maxQueue` of the Lockstep is the limit.',
    keys,
    waiting,
  })
}
