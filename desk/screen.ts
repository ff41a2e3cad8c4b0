import type { WriteStream } from 'node:tty'

/** Lines for people. */
export class Screen {
  readonly #out: WriteStream
  readonly #quiet: boolean

  constructor(out: WriteStream, quiet: boolean) {
    this.#out = out
    this.#quiet = quiet
  }

  /** What is good to know. */
  say(...lines: readonly string[]): void {
    if (!this.#quiet) this.warn(...lines)
  }

  /** What has to be known. */
  warn(...lines: readonly string[]): void {
    if (this.#out.writable) this.#out.write(`${lines.join('\n')}\n`)
  }
}
