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
 * For so long it is believed that nobody listens. A dispatcher that begins to listen looks every few milliseconds until this has passed
 * for every process (bell.ts).
 */
export const BELIEVED_MS = 1000
/** A ring that fails is repeated so often: a dispatcher that sleeps learns of the commit from nothing else. */
const TRIES = 6
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2000
/** SQLSTATEs of a schema without a bell, or a role without the right to ring it. */
const NO_BELL = /^(42|3F)/

/**
 * Rings for dispatchers in other processes, after COMMIT and in a transaction of its own. At most one ring is on its way: what is
 * committed meanwhile goes with the next. One that is lost with its process costs time and no event: dispatchers look by themselves.
 */
export class Ringer {
  readonly id = randomUUID()
  readonly #setup: PartSetup
  #groups: Groups = 0n
  /** Of those groups. */
  #topics: RingTopics = new Set()
  #ringing = false
  #quietUntil = -Infinity

  constructor(setup: PartSetup) {
    this.#setup = setup
  }

  /** Whether nobody listened when it was last asked, a moment ago. */
  get quiet(): boolean {
    return performance.now() < this.#quietUntil
  }

  /** Something was committed in these groups, of these topics. */
  ring(groups: Groups, topics: RingTopics): void {
    if (this.quiet) return
    this.#add(groups, topics)
    if (!this.#ringing) outsideTransactions(() => void this.#ring())
  }

  async #ring(): Promise<void> {
    const { closing } = this.#setup
    this.#ringing = true
    try {
      for (let failures = 0; this.#groups !== 0n && !closing.closed;) {
        const [groups, topics] = [this.#groups, this.#topics]
        this.#forget()
        const askedAt = performance.now()
        try {
          if (!(await this.#tell(groups, topics))) this.#believeQuiet(askedAt)
          failures = 0
        } catch (error) {
          if (++failures >= TRIES || NO_BELL.test(codeOf(error) ?? '')) {
            this.#believeQuiet(performance.now())
            continue
          }
          this.#add(groups, topics)
          await sleep(backoffMs(failures - 1, FIRST_PAUSE_MS, LONGEST_PAUSE_MS), undefined, { ref: false })
        }
      }
    } finally {
      this.#ringing = false
    }
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
