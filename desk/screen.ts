import type { WriteStream } from 'node:tty'

export type Level = 'quiet' | 'usual' | 'verbose'

/** Lines for people. */
export class Screen {
  readonly #out: WriteStream
  readonly #level: Level

  constructor(out: WriteStream, level: Level) {
    this.#out = out
    this.#level = level
  }

  /** What only those want to know who asked for it. */
  explain(...lines: readonly string[]): void {
    if (this.#level === 'verbose') this.warn(...lines)
  }

  /** What is good to know. */
  say(...lines: readonly string[]): void {
    if (this.#level !== 'quiet') this.warn(...lines)
  }

  /** What has to be known. */
  warn(...lines: readonly string[]): void {
    if (this.#out.writable) this.#out.write(`${lines.join('\n')}\n`)
  }
}
