import type { Message } from './wireFraming.ts'

/** A statement that was sent for execution. */
export interface Sent {
  readonly text: string
  /** It begins a transaction that the same message does not end. */
  readonly opens: boolean
  /** It commits a transaction that an earlier message has begun. */
  readonly commits: boolean
}

/** A group of messages that the server answers with one ReadyForQuery: a simple Query, or everything up to a Sync. */
type Group = readonly Sent[]

const OPENS = /^\s*(?:begin|start\s+transaction)\b/i
const COMMITS = /(?:^|;)\s*(?:commit|end)(?:\s+(?:work|transaction))?\s*;?\s*$/i
const ROLLS_BACK = /^\s*rollback\b/i

/**
 * What one connection says, as far as faults need it: which statements are sent, by text or by the name of a prepared statement, and
 * what the server has answered. It only listens.
 */
export class Conversation {
  readonly #statements = new Map<string, string>()
  readonly #portals = new Map<string, string>()
  /** Asked and not answered, oldest first. */
  readonly #asked: Group[] = []
  #group: Sent[] = []
  #inTransaction = false
  /** Whether a BEGIN is on its way. */
  #opening = false
  #texts: string[] = []

  /** How many groups the server has not answered. */
  get unanswered(): number {
    return this.#asked.length
  }

  /** The statements of the transaction that is open now, or was last, from its BEGIN on. */
  get texts(): readonly string[] {
    return this.#texts
  }

  /** What the client sends for execution with these messages. */
  sends(messages: readonly Message[]): Sent[] {
    const sent: Sent[] = []
    const execute = (text: string): void => {
      const each = this.#sends(text)
      sent.push(each)
      this.#group.push(each)
    }
    for (const { type, content } of messages) {
      if (type === 'P') {
        const [name = '', text = ''] = strings(content, 2)
        this.#statements.set(name, text)
      } else if (type === 'B') {
        const [portal = '', name = ''] = strings(content, 2)
        this.#portals.set(portal, this.#statements.get(name) ?? '')
      } else if (type === 'E') execute(this.#portals.get(strings(content, 1)[0] ?? '') ?? '')
      else if (type === 'Q') execute(strings(content, 1)[0] ?? '')
      if (type !== 'Q' && type !== 'S') continue
      this.#asked.push(this.#group)
      this.#group = []
    }
    return sent
  }

  /** What the server has answered with these messages: the statements of each group that is complete. */
  answers(messages: readonly Message[]): Sent[] {
    const answered: Sent[] = []
    for (const { type, content } of messages) {
      if (type !== 'Z') continue
      this.#inTransaction = content.toString('latin1') !== 'I'
      // The first one answers the start-up, which is no group.
      const group = this.#asked.shift() ?? []
      if (group.some(({ opens }) => opens)) this.#opening = false
      answered.push(...group)
    }
    return answered
  }

  #sends(text: string): Sent {
    const opened = this.#inTransaction || this.#opening
    const commits = COMMITS.test(text) && !ROLLS_BACK.test(text)
    const opens = !opened && OPENS.test(text) && !commits
    if (opens) {
      this.#opening = true
      this.#texts = [text]
    } else if (opened) this.#texts.push(text)
    return { text, opens, commits: opened && commits }
  }
}

/** The zero-terminated texts at the beginning of a message. */
function strings(content: Buffer, count: number): string[] {
  const found: string[] = []
  let at = 0
  while (found.length < count) {
    const end = content.indexOf(0, at)
    found.push(content.toString('utf8', at, end === -1 ? content.length : end))
    if (end === -1) break
    at = end + 1
  }
  return found
}
