const CODES = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const

export type Paint = (colour: keyof typeof CODES, text: string) => string

export const plain: Paint = (_colour, text) => text

/** What of a stream matters here. */
export interface Output {
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
  write(text: string): unknown
}

export function paintFor(output: Output, env: NodeJS.ProcessEnv = process.env): Paint {
  const isColoured = output.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
  return isColoured ? (colour, text) => `\u001B[${CODES[colour]}m${text}\u001B[0m` : plain
}

// oxlint-disable-next-line no-control-regex -- the codes begin with a control character
const PAINT = /\u001B\[\d+m/g

/** The columns that a text takes, whatever its colors. */
export function columnsOf(text: string): number {
  return Array.from(text.replaceAll(PAINT, '')).length
}

/** Cut to a number of columns; colors count for nothing and end with it. */
export function cutTo(text: string, columns: number): string {
  if (columnsOf(text) <= columns) return text
  let left = columns - 1
  let out = ''
  let isPainted = false
  // oxlint-disable-next-line no-control-regex -- as above
  for (const [piece] of text.matchAll(/\u001B\[\d+m|[^]/gu)) {
    if (piece.length > 1 && piece.startsWith('\u001B')) {
      isPainted = piece !== '\u001B[0m'
      out += piece
    } else if (left > 0) {
      out += piece
      left -= 1
    } else break
  }
  return `${out}…${isPainted ? '\u001B[0m' : ''}`
}
