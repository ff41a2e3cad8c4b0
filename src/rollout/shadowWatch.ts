import type { Closing } from '../locks/index.ts'
import { lockWouldWait } from '../observe/index.ts'
import { type Driver, type SilenceWatch, withConnection } from '../postgres/index.ts'
import { shadowHolders } from './rollout.sql.ts'
import { blockingIds, type Shadow } from './shadow.ts'

/** A caller that would have waited. */
interface Follower {
  readonly shadow: Shadow
  readonly since: number
  /** When its transaction began, by the server's clock, in seconds: only who was there before it is in its way. */
  readonly began: number
}

const LOOK_MS = 20
/** Longer waits than this are reported as such. */
const LONGEST_MS = 10_000
/** Enough to see what locking would do; beyond that only time is lost. */
const MAX_FOLLOWERS = 1000

/**
 * Finds out how long observed callers would have waited: until those who held the key's shadow when they came have let go of it.
 * Looks while a caller is followed and there is a listener, on a connection that no caller waits for.
 */
export class ShadowWatch {
  readonly #schema: string
  readonly #driver: Driver
  readonly #silence: SilenceWatch
  readonly #closing: Closing
  #followers: Follower[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(schema: string, driver: Driver, silence: SilenceWatch, closing: Closing) {
    this.#schema = schema
    this.#driver = driver
    this.#silence = silence
    this.#closing = closing
  }

  follow(shadow: Shadow, began: number): void {
    if (!lockWouldWait.hasSubscribers || this.#followers.length >= MAX_FOLLOWERS) return
    this.#followers.push({ shadow, since: performance.now(), began })
    this.#lookSoon()
  }

  #lookSoon(): void {
    if (this.#timer !== undefined || this.#followers.length === 0 || this.#closing.closed) return
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
    if (!this.#driver.hasIdle()) return
    const ids = [...new Set(this.#followers.flatMap((follower) => blockingIds(follower.shadow)))]
    const results = await withConnection(
      this.#driver,
      (connection) => connection.script(shadowHolders(ids)),
      this.#silence,
    )
    const rows = (results.at(-1)?.rows ?? []) as { id: string; pid: string; began: string }[]
    const now = performance.now()
    this.#followers = this.#followers.filter((follower) => {
      const theirs = blockingIds(follower.shadow).map(String)
      const granted = !rows.some((row) => theirs.includes(row.id) && Number(row.began) < follower.began)
      const waitMs = now - follower.since
      if (!granted && waitMs < LONGEST_MS) return true
      lockWouldWait.publish({ schema: this.#schema, key: follower.shadow.key, waitMs, granted })
      return false
    })
  }
}
