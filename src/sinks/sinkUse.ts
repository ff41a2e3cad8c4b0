/**
 * Who uses a sink, and what is in progress. Each `run()` of a dispatcher opens its sink and closes it; a caller that opens the sink itself
 * keeps it open until it closes it itself. The sink closes when the last of them has closed it, and opens again with the next `open()`.
 * One that was never opened can be used as well: it is open until it is closed.
 */
export class SinkUse {
  readonly #underWay = new Set<Promise<unknown>>()
  readonly #release: () => Promise<void> | void
  #users = 0
  #closed = false
  #closing: Promise<void> | undefined

  /** `release` ends what the sink has made for itself. It is called when nothing is in progress any more. */
  constructor(release: () => Promise<void> | void = () => undefined) {
    this.#release = release
  }

  get closed(): boolean {
    return this.#closed
  }

  /** Comes back when the sink can be used: not before an end that is in progress. */
  async open(): Promise<void> {
    this.#users++
    await this.#closing
    if (this.#users > 0) this.#closed = false
  }

  async close(): Promise<void> {
    this.#users = Math.max(0, this.#users - 1)
    if (this.#users > 0) return
    this.#closed = true
    this.#closing ??= this.#end().finally(() => (this.#closing = undefined))
    await this.#closing
  }

  /** Has `close()` wait for it. */
  async track<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work)
    try {
      return await work
    } finally {
      this.#underWay.delete(work)
    }
  }

  async #end(): Promise<void> {
    await Promise.allSettled(this.#underWay)
    await this.#release()
  }
}
