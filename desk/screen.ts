import type { WriteStream } from 'node:tty'

/** Redrawing more often than people can see would only slow the racers down. */
const FRAME_MS = 60

/**
 * Lines of text, below which a terminal may have a few lines that change. Where the output is no terminal, the changing ones are
 * left out: whoever reads a log wants each fact once.
 */
export class Screen {
  readonly #out: WriteStream
  readonly #live: boolean
  #drawn = 0
  #drawnAt = 0

  constructor(out: WriteStream) {
    this.#out = out
    this.#live = out.isTTY && process.env['TERM'] !== 'dumb'
  }

  get columns(): number {
    return this.#live ? this.#out.columns || 80 : 100
  }

  say(...lines: readonly string[]): void {
    this.#erase()
    this.#write(`${lines.join('\n')}\n`)
  }

  /** Replaces the changing lines. */
  show(lines: readonly string[]): void {
    const now = performance.now()
    if (!this.#live || now - this.#drawnAt < FRAME_MS) return
    this.#erase()
    this.#drawnAt = now
    this.#drawn = lines.length
    // A line that the terminal breaks in two could not be found again.
    this.#write(lines.map((line) => `${line.slice(0, this.columns - 1)}\n`).join(''))
  }

  /** Takes the changing lines away. */
  clear(): void {
    this.#erase()
  }

  #erase(): void {
    if (this.#drawn === 0) return
    this.#write(`\u001B[${this.#drawn}A\u001B[J`)
    this.#drawn = 0
  }

  #write(text: string): void {
    if (this.#out.writable) this.#out.write(text)
  }
}
