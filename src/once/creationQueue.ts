import type { Key, WaitBudget } from '../locks/index.ts'
import type { LockstepContext } from '../transactions/index.ts'

/** The right of one caller of this process to ask for the lease of a key. */
export interface Turn {
  /**
   * Passes the turn on. `done`: the thing is there, and every waiter can read it. `open`: it might not exist, and the next caller has to
   * try. Calls after the first do nothing.
   */
  end(state: 'done' | 'open'): void
}

/** `done`: the thing was there a moment ago. `over`: the wait budget has ended. A turn: this caller is next. */
type Woken = Turn | 'done' | 'over'

interface Waiter {
  readonly wake: (outcome: Woken) => void
}

/**
 * The callers of `onceExternal` in one process, by key. One of them, the one with the turn, asks for the lease or holds it; the others wait
 * here, in their order, without a row in the database. So a process takes the lease once for all callers that want one thing, and not
 * once for each of them.
 *
 * **No caller gets a stale answer.** Nothing is passed from one caller to another but the news that it is worth looking: who is woken runs
 * its own `find`, in a transaction that begins after the creator's COMMIT was answered, and so sees it. If the thing is gone again by then,
 * `find` says so, and the caller continues as if it had just come.
 *
 * **No caller waits for one that is stuck.** The turn ends with the lease and not with the call: a creator that has lost its lease passes its
 * turn on, even if its `act` never returns.
 */
export class CreationQueue {
  readonly #limit: LockstepContext['limit']
  /** A key is here while a caller has its turn. */
  readonly #waiting = new Map<Key, Set<Waiter>>()

  constructor({ limit }: Pick<LockstepContext, 'limit'>) {
    this.#limit = limit
  }

  /** Takes the turn. Undefined if another caller has it. */
  begin(key: Key): Turn | undefined {
    if (this.#waiting.has(key)) return undefined
    this.#waiting.set(key, new Set())
    return this.#turn(key)
  }

  /** Waits while another caller has the turn. */
  wait(key: Key, budget: WaitBudget): Promise<Woken> {
    const waiting = this.#waiting.get(key)
    if (waiting === undefined) return Promise.resolve('done')
    const refusal = this.#limit.begin(key, waiting.size)
    if (refusal !== undefined) return Promise.reject(refusal)
    return new Promise((resolve) => {
      let forget: (() => void) | undefined
      const waiter: Waiter = {
        wake: (outcome) => {
          if (!waiting.delete(waiter)) return
          forget?.()
          this.#limit.end()
          resolve(outcome)
        },
      }
      waiting.add(waiter)
      // Called at once where it has ended before.
      forget = budget.onEnd(() => waiter.wake('over'))
    })
  }

  #turn(key: Key): Turn {
    let ended = false
    return {
      end: (state) => {
        if (ended) return
        ended = true
        this.#pass(key, state)
      },
    }
  }

  #pass(key: Key, state: 'done' | 'open'): void {
    const waiting = this.#waiting.get(key) ?? new Set()
    const [first] = waiting
    // One at a time: if creating fails, all of them would look again after each failure.
    if (state === 'open' && first !== undefined) return first.wake(this.#turn(key))
    this.#waiting.delete(key)
    for (const { wake } of waiting) wake('done')
  }
}
