const CODES = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const

export type Colour = keyof typeof CODES

/** What of a terminal matters to a text. */
export interface Terminal {
  /** Infinity without a terminal: a file or a pipe keeps its lines whole. */
  readonly columns: number
  /** As many lines as fit; Infinity without a terminal: a frame is then written below the last one. */
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
  const screen = stream.isTTY === true
  const dumb = env['TERM'] === 'dumb'
  const coloured = !env['NO_COLOR'] && (isForced(env['FORCE_COLOR']) || (screen && !dumb))
  const sizeOf = (size: number | undefined): number => (screen && size ? size : Infinity)
  return {
    columns: sizeOf(stream.columns),
    // The log of a CI may look like a terminal, and keeps what is written over.
    rows: dumb || isSet(env['CI']) ? Infinity : sizeOf(stream.rows),
    paint: (colour, text) => (coloured ? `\u001B[${CODES[colour]}m${text}\u001B[0m` : text),
  }
}

function isForced(value: string | undefined): boolean {
  return value !== undefined && value !== '' && value !== '0' && value !== 'false'
}

function isSet(value: string | undefined): boolean {
  return value !== undefined && value !== '' && value !== 'false'
}
