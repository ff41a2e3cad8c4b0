/** What is on its way to the database and not awaited; `close()` awaits it. */
export class BackgroundTasks {
  readonly #promises = new Set<Promise<unknown>>()

  track<T>(promise: Promise<T>): Promise<T> {
    this.#promises.add(promise)
    const forget = (): void => void this.#promises.delete(promise)
    promise.then(forget, forget)
    return promise
  }

  /** Comes back when nothing is on its way any more. */
  async settled(): Promise<void> {
    while (this.#promises.size > 0) await Promise.allSettled(this.#promises)
  }
}

/** The promise, or undefined when it takes too long; its error is ignored. */
export function within<T>(promise: Promise<T> | undefined, ms: number): Promise<T | undefined> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(undefined), ms)
    const end = (value?: T): void => {
      clearTimeout(timer)
      resolve(value)
    }
    Promise.resolve(promise).then(end, () => end())
  })
}
