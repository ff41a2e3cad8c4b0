/** Whether the library is being closed, and whom to tell. An AbortSignal would do, at several microseconds for each transaction. */
export class Closing {
  closed = false
  readonly #listeners = new Set<() => void>()

  close(): void {
    this.closed = true
    for (const listener of this.#listeners) listener()
  }

  /** Calls back once when it closes; the answer takes it back. */
  onClose(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }
}
