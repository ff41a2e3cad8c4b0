import { randomUUID } from 'node:crypto'
import { withConnection } from '../postgres/index.ts'
import { outsideTransactions, type PartSetup } from '../transactions/index.ts'
import { type Groups, writeGroups } from './groups.ts'
import { ringBell } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'
import { type RingTopics, writeTopics } from './ringTopics.ts'

/**
 * For so long it is believed that nobody listens. A dispatcher that begins to listen looks every few milliseconds until this has passed
 * for every process (bell.ts).
 */
export const BELIEVED_MS = 1000

/**
 * Rings for dispatchers in other processes, after COMMIT and in a transaction of its own. At most one ring is on its way: what is
 * committed meanwhile goes with the next. A ring that fails is not repeated, and one that is lost with its process is not missed:
 * dispatchers look by themselves.
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
    this.#groups |= groups
    this.#topics = topics && this.#topics && new Set([...this.#topics, ...topics])
    if (!this.#ringing) outsideTransactions(() => void this.#ring())
  }

  async #ring(): Promise<void> {
    const { driver, quotedSchema, silence, closing } = this.#setup
    this.#ringing = true
    try {
      while (this.#groups !== 0n && !closing.closed) {
        const text = ringBell(quotedSchema, `${writeGroups(this.#groups)} ${this.id}${writeTopics(this.#topics)}`)
        this.#forget()
        const answers = await withConnection(driver, (connection) => connection.script(text), silence)
        if (resultRows(answers)[0]?.['rung'] !== 'true') this.#believeQuiet()
      }
    } catch {
      // Not reachable, or a schema without a bell.
      this.#believeQuiet()
    } finally {
      this.#ringing = false
    }
  }

  #believeQuiet(): void {
    this.#quietUntil = performance.now() + BELIEVED_MS
    this.#forget()
  }

  #forget(): void {
    this.#groups = 0n
    this.#topics = new Set()
  }
}
