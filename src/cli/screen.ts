import type { Terminal } from './terminal.ts'

const HOME = '\u001B[H'
const CLEAR_LINE = '\u001B[K'
const CLEAR_BELOW = '\u001B[J'
const CLEAR_ALL = '\u001B[2J'

/**
 * Writes one frame after the other: in place on a screen, one below the other elsewhere. On a screen a frame is cut to what fits,
 * because what has scrolled away cannot be written over.
 */
export class Screen {
  readonly #write: (text: string) => void
  readonly #terminal: () => Terminal
  #begun = false

  /** The terminal is asked for every frame: people resize it. */
  constructor(write: (text: string) => void, terminal: () => Terminal) {
    this.#write = write
    this.#terminal = terminal
  }

  show(text: (terminal: Terminal) => string): void {
    const terminal = this.#terminal()
    const frame = text(terminal)
    const first = !this.#begun
    this.#begun = true
    if (terminal.rows === Infinity) return this.#write(`${first ? '' : '\n'}${frame}\n`)
    const lines = frame.split('\n')
    const room = terminal.rows - 1
    const shown =
      lines.length <= room ? lines : [...lines.slice(0, room - 1), `… ${lines.length - room + 1} more lines`]
    const body = shown.map((line) => `${line}${CLEAR_LINE}\n`).join('')
    this.#write(`${first ? CLEAR_ALL : ''}${HOME}${body}${CLEAR_BELOW}`)
  }
}
