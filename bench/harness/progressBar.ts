const WIDTH = 24

/**
 * How far a run of some benches is, in one line on stderr: rewritten in place on a terminal, and one line for each change of text
 * elsewhere.
 */
export class ProgressBar {
  readonly #benches: number
  #done = 0
  #last = ''

  constructor(benches: number) {
    this.#benches = benches
  }

  /** `share` is of the bench that runs. */
  tell(text: string, share = 0): void {
    const all = (this.#done + Math.min(1, Math.max(0, share))) / this.#benches
    const line = `${barOf(all)} ${String(Math.floor(all * 100)).padStart(3)} % ${text}`
    if (process.stderr.isTTY) process.stderr.write(`\r\u001B[2K${line.slice(0, process.stderr.columns)}`)
    else if (text !== this.#last) process.stderr.write(`${line}\n`)
    this.#last = text
  }

  /** One bench is done. */
  next(): void {
    this.#done++
    if (process.stderr.isTTY) process.stderr.write('\r\u001B[2K')
  }
}

export function barOf(share: number): string {
  const full = Math.round(share * WIDTH)
  return `[${'='.repeat(full)}${' '.repeat(WIDTH - full)}]`
}
