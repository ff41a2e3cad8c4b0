/** A listener, and its neighbors in the list. */
interface Listed {
  readonly listener: () => void
  before: Listed | undefined
  after: Listed | undefined
}

/**
 * Whether the library is being closed, and the listeners for that. An AbortSignal costs each transaction several microseconds. A Set whose
 * entries come and go all the time is rebuilt again and again.
 */
export class Closing {
  closed = false
  #first: Listed | undefined

  close(): void {
    this.closed = true
    // A listener may remove others.
    const all: Listed[] = []
    for (let listed = this.#first; listed !== undefined; listed = listed.after) all.push(listed)
    for (const listed of all.toReversed()) if (this.#has(listed)) listed.listener()
  }

  /** Calls back once when it closes; the answer takes it back. */
  onClose(listener: () => void): () => void {
    const after = this.#first
    const listed: Listed = { listener, before: undefined, after }
    if (after !== undefined) after.before = listed
    this.#first = listed
    return () => this.#remove(listed)
  }

  #has(listed: Listed): boolean {
    return this.#first === listed || listed.before !== undefined
  }

  #remove(listed: Listed): void {
    if (!this.#has(listed)) return
    const { before, after } = listed
    if (before === undefined) this.#first = after
    else before.after = after
    if (after !== undefined) after.before = before
    listed.before = listed.after = undefined
  }
}
