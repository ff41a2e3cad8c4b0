const CODES = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const

export type Colour = keyof typeof CODES

/** What of a terminal matters to a text. */
export interface Terminal {
  /** Infinity where nobody looks at lines: a file or a pipe keeps its lines whole. */
  readonly columns: number
  /** As many lines as fit; Infinity where nobody looks at a screen. */
  readonly rows: number
  readonly paint: (colour: Colour, text: string) => string
}

interface Stream {
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

/** By hand: styleText of Node 20 minds neither the stream nor, in some forms, NO_COLOR. */
export function terminalOf(stream: Stream, env: NodeJS.ProcessEnv = process.env): Terminal {
  const coloured = stream.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
  const sizeOf = (size: number | undefined): number => (stream.isTTY === true && size ? size : Infinity)
  return {
    columns: sizeOf(stream.columns),
    rows: env['TERM'] === 'dumb' ? Infinity : sizeOf(stream.rows),
    paint: (colour, text) => (coloured ? `\u001B[${CODES[colour]}m${text}\u001B[0m` : text),
  }
}
