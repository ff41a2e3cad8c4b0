import { onAbort } from '../postgres/index.ts'

/** Limits how many streams are in progress at once. The others wait in order of arrival. */
export class StreamLimit {
  #free: number
  readonly #waiting = new Set<() => void>()

  constructor(most: number) {
    this.#free = most
  }

  /** False where the signal was aborted first. After `true`, `release()` has to be called once. */
  take(signal: AbortSignal): Promise<boolean> | boolean {
    if (signal.aborted) return false
    if (this.#free > 0) {
      this.#free--
      return true
    }
    return new Promise((resolve) => {
      const given = (): void => {
        forget()
        resolve(true)
      }
      this.#waiting.add(given)
      const forget = onAbort(signal, () => {
        this.#waiting.delete(given)
        resolve(false)
      })
    })
  }

  release(): void {
    const [next] = this.#waiting
    if (next === undefined) {
      this.#free++
      return
    }
    this.#waiting.delete(next)
    next()
  }
}
