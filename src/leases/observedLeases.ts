import type { Key } from '../locks/index.ts'
import { leaseWouldWait } from '../observe/index.ts'
import { withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import type { HeldLease } from './lease.ts'
import { type ObservedHolderRow, observedHolders } from './leases.sql.ts'
import type { LeasePlan } from './options.ts'

/** A caller that is followed until it is known how its wait would have ended. */
interface Follower {
  readonly key: Key
  readonly plan: LeasePlan
  readonly fence: bigint
  readonly since: number
  readonly heldBy: string | undefined
}

/** How many callers can observe one key at once. More are not counted. */
const MOST_OBSERVERS = 1000
/** After this time the caller continues without the mark: observing must not delay a caller. */
const MARK_MS = 1000
const LOOK_MS = 50
/** Longer waits than this are reported as refused. */
const LONGEST_MS = 10_000
/** Enough to see what leases would do. */
const MAX_FOLLOWERS = 1000

/** The name under which the observers of a key are listed: a lease of its own, which never refuses any of them. */
export function observedName(key: Key): Key {
  return `Observed:${key}`
}

/**
 * Observes leases. Each caller of an observed key takes a lease on another name that has room for all of them, so that heartbeats, the end after a
 * crash and the fence are those of every lease. Who is there with a smaller fence would have been in its way; a look every now and then, one
 * for all that are followed, says for how long.
 */
export class ObservedLeases {
  readonly #context: LockstepContext
  readonly #hold: (key: Key, plan: LeasePlan) => Promise<HeldLease>
  #followers: Follower[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(context: LockstepContext, hold: (key: Key, plan: LeasePlan) => Promise<HeldLease>) {
    this.#context = context
    this.#hold = hold
  }

  /** Shows that a caller is there. Undefined where the database could not be asked in time: nothing is counted of it. */
  async mark(key: Key, plan: LeasePlan): Promise<HeldLease | undefined> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), MARK_MS)
    })
    const marking = this.#markAndLook(key, plan).catch(() => undefined)
    const mark = await Promise.race([marking, late])
    clearTimeout(timer)
    if (mark === undefined) void marking.then((tooLate) => tooLate?.release())
    return mark
  }

  async #markAndLook(key: Key, plan: LeasePlan): Promise<HeldLease> {
    const since = performance.now()
    const wanted = {
      ...plan,
      waitMs: 0,
      signal: undefined,
      permits: MOST_OBSERVERS,
      maxHoldMs: undefined,
      history: false,
    }
    const mark = await this.#hold(observedName(key), wanted)
    if (!leaseWouldWait.hasSubscribers || this.#followers.length >= MAX_FOLLOWERS) return mark
    // Before the caller continues: those in its way may be gone when it has.
    const rows = await this.#holdersOf([key]).catch(() => [])
    const ahead = holdersAhead(rows, key, mark.fence)
    if (ahead.length < plan.permits) return mark
    const follower = { key, plan, fence: mark.fence, since, heldBy: ahead[0]?.holder }
    if (this.#goesOn(follower, rows)) {
      this.#followers.push(follower)
      this.#lookSoon()
    }
    return mark
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#followers = []
  }

  #lookSoon(): void {
    if (this.#timer !== undefined || this.#followers.length === 0 || this.#context.closing.closed) return
    this.#timer = setTimeout(() => {
      void this.#look()
        .catch(() => undefined)
        .finally(() => {
          this.#timer = undefined
          this.#lookSoon()
        })
    }, LOOK_MS)
    this.#timer.unref()
  }

  async #look(): Promise<void> {
    // On a connection that no caller waits for.
    if (!this.#context.driver.hasIdle()) return
    const asked = new Set(this.#followers)
    const rows = await this.#holdersOf([...new Set([...asked].map(({ key }) => key))])
    this.#followers = this.#followers.filter((each) => !asked.has(each) || this.#goesOn(each, rows))
  }

  async #holdersOf(keys: readonly Key[]): Promise<ObservedHolderRow[]> {
    const { driver, quotedSchema, silence } = this.#context
    const text = observedHolders(
      quotedSchema,
      keys.flatMap((key) => [key, observedName(key)]),
    )
    const results = await withConnection(driver, (connection) => connection.script(text), silence)
    return results.flatMap((result) => result.rows as unknown as ObservedHolderRow[])
  }

  /** Whether its wait would continue; reports it otherwise. */
  #goesOn({ key, plan, fence, since, heldBy }: Follower, rows: readonly ObservedHolderRow[]): boolean {
    const free = holdersAhead(rows, key, fence).length < plan.permits
    const longestMs = Math.min(plan.waitMs === false ? Infinity : plan.waitMs, LONGEST_MS)
    const waitMs = Math.min(performance.now() - since, longestMs)
    if (!free && waitMs < longestMs) return true
    const { schema } = this.#context
    leaseWouldWait.publish({ schema, key, holder: plan.holder, heldBy, waitMs, granted: free })
    return false
  }
}

/** Who was there before: an observer with a smaller fence, or a holder in a process that does not observe. */
function holdersAhead(rows: readonly ObservedHolderRow[], key: Key, fence: bigint): ObservedHolderRow[] {
  return rows.filter((row) => (row.name === key || row.name === observedName(key)) && BigInt(row.fence) < fence)
}
