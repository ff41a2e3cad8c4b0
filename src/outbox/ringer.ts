import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf, withConnection } from '../postgres/index.ts'
import { outsideTransactions, type PartSetup } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { type Groups, writeGroups } from './groups.ts'
import { ringBell } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'
import { type RingTopics, writeTopics } from './ringTopics.ts'

/**
 * How long this process believes that no dispatcher listens. A dispatcher that begins to listen looks every few milliseconds until this has passed
 * for every process (bell.ts).
 */
export const BELIEVED_MS = 1000
/** How often a failed ring is repeated: a dispatcher that sleeps learns of the commit only by a ring. */
const TRIES = 6
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2000
/**
 * After a ring, the next one waits for so many times as long as that took. A ring costs the server more than half of what a transaction with one event
 * costs it: a process that commits all the time, and rings again as soon as the last ring is answered, loses a seventh of its rate.
 */
const PAUSE_TIMES = 9
/** The longest of these pauses: with a distant server a ring takes long and costs no more. */
const LONGEST_SPACING_MS = 6
/** close() does not wait for a server that does not answer. */
const CLOSE_MS = 1000
/** SQLSTATEs of a schema without a bell, or a role without the right to ring it. */
const NO_BELL = /^(42|3F)/

/**
 * Rings for dispatchers in other processes, after COMMIT and in a transaction of its own. At most one ring is on its way: what is
 * committed meanwhile goes with the next, which leaves a pause. One that is lost with its process costs time and no event: dispatchers look by
 * themselves.
 */
export class Ringer {
  readonly id = randomUUID()
  readonly #setup: PartSetup
  #groups: Groups = 0n
  /** Of those groups. */
  #topics: RingTopics = new Set()
  #ringing: Promise<void> | undefined
  #quietUntil = -Infinity
  /** When the next ring may go. */
  #nextAt = -Infinity

  constructor(setup: PartSetup) {
    this.#setup = setup
  }

  /** Whether no dispatcher listened when it was last asked, a moment ago. */
  get quiet(): boolean {
    return performance.now() < this.#quietUntil
  }

  /** Something was committed in these groups, of these topics. */
  ring(groups: Groups, topics: RingTopics): void {
    if (this.quiet) return
    this.#add(groups, topics)
    if (this.#ringing === undefined) outsideTransactions(() => void (this.#ringing = this.#ring()))
  }

  /** Comes back when nothing is to be rung for any more, or when that takes too long. */
  async settled(): Promise<void> {
    if (this.#ringing === undefined) return
    const over = new AbortController()
    await Promise.race([this.#ringing, sleep(CLOSE_MS, undefined, over).catch(() => undefined)])
    over.abort()
  }

  async #ring(): Promise<void> {
    const { closing } = this.#setup
    try {
      for (let failures = 0; this.#groups !== 0n;) {
        const waitMs = this.#nextAt - performance.now()
        if (waitMs > 0 && !closing.closed) await this.#pause(waitMs)
        const [groups, topics] = [this.#groups, this.#topics]
        this.#forget()
        const askedAt = performance.now()
        try {
          if (!(await this.#tell(groups, topics))) this.#believeQuiet(askedAt)
          failures = 0
          const now = performance.now()
          this.#nextAt = now + Math.min(LONGEST_SPACING_MS, (now - askedAt) * PAUSE_TIMES)
        } catch (error) {
          if (closing.closed || ++failures >= TRIES || NO_BELL.test(codeOf(error) ?? '')) {
            this.#believeQuiet(performance.now())
            continue
          }
          this.#add(groups, topics)
          await this.#pause(backoffMs(failures - 1, FIRST_PAUSE_MS, LONGEST_PAUSE_MS))
        }
      }
    } finally {
      this.#ringing = undefined
    }
  }

  /** Ends early when it closes: what is not rung for yet is rung for at once. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        forget()
        resolve()
      }
      const timer = setTimeout(end, ms)
      const forget = this.#setup.closing.onClose(end)
    })
  }

  /** False: no dispatcher waits. */
  async #tell(groups: Groups, topics: RingTopics): Promise<boolean> {
    const { driver, quotedSchema, silence } = this.#setup
    const text = ringBell(quotedSchema, `${writeGroups(groups)} ${this.id}${writeTopics(topics)}`)
    const answers = await withConnection(driver, (connection) => connection.script(text), silence)
    return resultRows(answers)[0]?.['rung'] === 'true'
  }

  /** A dispatcher that begins to listen counts from its own question: so this time counts from before this one. */
  #believeQuiet(askedAt: number): void {
    this.#quietUntil = askedAt + BELIEVED_MS
    if (this.quiet) this.#forget()
  }

  #add(groups: Groups, topics: RingTopics): void {
    this.#groups |= groups
    this.#topics = topics && this.#topics && new Set([...this.#topics, ...topics])
  }

  #forget(): void {
    this.#groups = 0n
    this.#topics = new Set()
  }
}
