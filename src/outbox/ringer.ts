import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Stream } from '../events/index.ts'
import { codeOf, withConnection } from '../postgres/index.ts'
import { outsideTransactions, type PartSetup } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { type Groups, writeGroups } from './groups.ts'
import { ringBell } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'
import { RingContents } from './ringContents.ts'
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
 * After a ring, the next one waits for so many times as long as that took. A ring costs the server as much as a transaction with one event: a process
 * that commits all the time, and rings again as soon as the last ring is answered, loses a seventh of its rate.
 */
const PAUSE_TIMES = 9
const LONGEST_SPACING_MS = 6
/** The pause while dispatchers find all that is committed by looking, which they do all the time where they find much. */
const DENSE_PAUSE_TIMES = 20
const [LEAST_DENSE_MS, LONGEST_DENSE_MS] = [25, 100]
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
  /** What was committed and is not rung for yet. */
  #contents = new RingContents()
  #last = new RingContents()
  /** Whether dispatchers find that by looking, after the last ring. */
  #isFound = false
  #ringing: Promise<void> | undefined
  #quietUntil = -Infinity
  /** When the next ring may go, and when it goes if dispatchers find by looking what it stands for. */
  #nextAt = -Infinity
  #foundNextAt = -Infinity
  #endPause: (() => void) | undefined

  constructor(setup: PartSetup) {
    this.#setup = setup
  }

  /** Whether no dispatcher listened when it was last asked, a moment ago. */
  get quiet(): boolean {
    return performance.now() < this.#quietUntil
  }

  /** Events of these streams were committed. */
  ring(streams: readonly Stream[]): void {
    if (this.quiet) return
    this.#contents.add(streams)
    if (this.#isFound && !this.#last.leadsTo(streams)) {
      this.#isFound = false
      this.#endPause?.()
    }
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
      for (let failures = 0; !this.#contents.isEmpty;) {
        await this.#spacing()
        const contents = this.#contents
        this.#forget()
        const askedAt = performance.now()
        try {
          if (!(await this.#tell(contents.groups(this.#setup.schema), contents.topics))) this.#believeQuiet(askedAt)
          failures = 0
          this.#rung(contents, performance.now() - askedAt)
        } catch (error) {
          if (closing.closed || ++failures >= TRIES || NO_BELL.test(codeOf(error) ?? '')) {
            this.#believeQuiet(performance.now())
            continue
          }
          this.#contents.addFailed(contents)
          this.#isFound = false
          await this.#pause(backoffMs(failures - 1, FIRST_PAUSE_MS, LONGEST_PAUSE_MS))
        }
      }
    } finally {
      this.#ringing = undefined
    }
  }

  /** The pause after the last ring. It becomes the short one when something is committed that dispatchers do not find by looking. */
  async #spacing(): Promise<void> {
    const leftMs = (): number => (this.#isFound ? this.#foundNextAt : this.#nextAt) - performance.now()
    while (leftMs() > 0 && !this.#setup.closing.closed) await this.#pause(leftMs())
  }

  #rung(contents: RingContents, tookMs: number): void {
    const now = performance.now()
    this.#last = contents
    this.#isFound = contents.leadsToAll(this.#contents)
    this.#nextAt = now + Math.min(LONGEST_SPACING_MS, tookMs * PAUSE_TIMES)
    this.#foundNextAt = now + Math.min(LONGEST_DENSE_MS, Math.max(LEAST_DENSE_MS, tookMs * DENSE_PAUSE_TIMES))
  }

  /** Ends early when it closes: what is not rung for yet is rung for at once. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        forget()
        this.#endPause = undefined
        resolve()
      }
      const timer = setTimeout(end, ms)
      const forget = this.#setup.closing.onClose(end)
      this.#endPause = end
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

  #forget(): void {
    this.#contents = new RingContents()
  }
}
