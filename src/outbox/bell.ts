import { randomUUID } from 'node:crypto'
import type { Listener } from '../leases/index.ts'
import { withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { type Groups, readGroups } from './groups.ts'
import { readTopics, type RingTopics } from './ringTopics.ts'
import { listenForBell, lookAndListen } from './outbox.sql.ts'

/** How long writers ring after a registration. It is renewed every minute, so writers stop ringing for a dead process after this time. */
const LISTEN_MS = 150_000
const REFRESH_MS = 55_000
/** The largest integer of PostgreSQL: 24 days. */
const FOR_GOOD_MS = 2_147_483_647

const RING = /^outbox (?:([0-9a-f]{16}) ([0-9a-f-]{36})(?: t:(\S+))?(?: ([0-9A-F]{1,8}\/[0-9A-F]{1,8}))?)?/

/**
 * The groups and topics that have new events, groups undefined where rings may have been missed; and the end of the log just before the ring, if
 * known.
 */
export type Heard = (groups: Groups | undefined, topics?: RingTopics, rungAt?: string) => void

/** Whether there is anything to do, and how long until a stream that waits is due. */
export interface Look {
  readonly stirred: boolean
  readonly dueMs: number
}

/** What a dispatcher hears of commits in other processes. */
export class Bell {
  /** As whom it asks; another one after each time that it has said that no ring is needed. */
  #me = randomUUID()
  readonly #context: LockstepContext
  readonly #listener: Listener
  readonly #ringsAs: string
  readonly #heard: Heard
  readonly #hear = (payload: string | undefined): void => this.#sort(payload)
  #registered: Registered | undefined

  /** Rings of `ringsAs` are this process's. */
  constructor(context: LockstepContext, listener: Listener, ringsAs: string, heard: Heard) {
    this.#context = context
    this.#listener = listener
    this.#ringsAs = ringsAs
    this.#heard = heard
  }

  /** Whether there is a connection that hears it. */
  get hears(): boolean {
    return this.#listener.hears
  }

  /** Whether writers have to be asked again to ring. */
  get lapses(): boolean {
    return this.#registered !== undefined && elapsedMs(this.#registered) > REFRESH_MS
  }

  /** Whether writers may have stopped ringing for it. */
  get lapsed(): boolean {
    return this.#registered !== undefined && elapsedMs(this.#registered) > this.#registered.forMs / 2
  }

  /** Can be called again. */
  start(): void {
    this.#listener.want(this.#hear)
  }

  /** From the answer on, writers ring; one that has asked shortly before, a little later. */
  async ask(): Promise<void> {
    const registered = registeredFor(LISTEN_MS)
    await this.#send(listenForBell(this.#context.quotedSchema, this.#me, LISTEN_MS))
    this.#registered = registered
  }

  /**
   * Asks again, and then whether there is anything to do for a dispatcher, and when a stream that waits is due: one message. `forGood`: it will
   * not ask again by itself.
   */
  async askAndLook(dispatcher: string, shards: number, forGood: boolean): Promise<Look> {
    const { driver, quotedSchema, silence } = this.#context
    const registered = registeredFor(forGood ? FOR_GOOD_MS : LISTEN_MS)
    const text = lookAndListen(quotedSchema, dispatcher, shards, this.#me, registered.forMs)
    const answers = await withConnection(driver, (connection) => connection.script(text), silence)
    this.#registered = registered
    const look = answers.find(({ rows }) => rows[0]?.['stirred'] !== undefined)?.rows[0]
    return {
      stirred: look?.['stirred'] !== 'false',
      dueMs: look?.['due_ms'] == null ? Infinity : Number(look['due_ms']),
    }
  }

  /** No ring is needed any more. */
  async decline(): Promise<void> {
    if (this.#registered === undefined) return
    this.#registered = undefined
    const text = listenForBell(this.#context.quotedSchema, this.#me, undefined)
    // The server can execute this after the next request, which is on another connection.
    this.#me = randomUUID()
    await this.#send(text)
  }

  async stop(): Promise<void> {
    this.#listener.leave(this.#hear)
    // Otherwise it lapses.
    await this.decline().catch(() => undefined)
  }

  #send(text: string): Promise<unknown> {
    const { driver, silence } = this.#context
    return withConnection(driver, (connection) => connection.script(text), silence)
  }

  #sort(payload: string | undefined): void {
    if (payload === undefined) return this.#heard(undefined)
    const ring = RING.exec(payload)
    // A commit in this process has woken it directly.
    if (ring !== null && ring[2] !== this.#ringsAs) this.#heard(readGroups(ring[1]), readTopics(ring[3]), ring[4])
  }
}

/** When writers were asked to ring, and for how long. */
interface Registered {
  readonly monotonic: number
  readonly wall: number
  readonly forMs: number
}

function registeredFor(forMs: number): Registered {
  return { monotonic: performance.now(), wall: Date.now(), forMs }
}

/** At least: the monotonic clock stands still while the machine is suspended. */
function elapsedMs({ monotonic, wall }: Registered): number {
  return Math.max(performance.now() - monotonic, Date.now() - wall)
}
