/** A place that is taken. */
export interface Box {
  readonly left: number
  readonly top: number
  readonly right: number
  readonly bottom: number
}

/** A text that hangs on a mark: to the right of a stem that comes from it. */
export interface Flag {
  readonly x: number
  readonly text: string
  /** More is more important. */
  readonly weight: number
}

export type PlacedFlag<Of extends Flag> = Of & { readonly row: number }

/** Of all fixed-width fonts that a machine may have, the widest. */
const FIXED_WIDTH = 0.61
/** Of proportional fonts in half-bold, on average, and rather too much. */
const PROPORTIONAL_WIDTH = 0.58
const FLAG_GAP = 8
export const FLAG_INDENT = 4

/** How wide a text is in the fixed-width font. What is not of the Latin alphabet may be twice as wide. */
export function fixedWidth(text: string, size: number): number {
  return cellsOf(text) * size * FIXED_WIDTH
}

/** How wide a text is in the proportional font: an estimate, on the safe side. */
export function proportionalWidth(text: string, size: number): number {
  return cellsOf(text) * size * PROPORTIONAL_WIDTH
}

function cellsOf(text: string): number {
  let cells = 0
  for (const character of text)
    cells += (character.codePointAt(0) ?? 0) < 0x11_00 || /[–—‘’“”…′]/.test(character) ? 1 : 2
  return cells
}

/** Cut to a number of characters, with a mark where it was cut. */
export function shorten(text: string, most: number): string {
  const characters = Array.from(text)
  return characters.length <= most ? text : `${characters.slice(0, Math.max(0, most - 1)).join('')}…`
}

/** In lines of at most a width; the last ends with an ellipsis if it is not all. */
export function wrapText(text: string, size: number, width: number, mostLines: number): string[] {
  const lines: string[] = []
  const most = Math.floor(width / proportionalWidth('m', size))
  for (const word of text.split(/\s+/).filter((each) => each !== '')) {
    const line = lines.at(-1)
    const longer = `${line} ${word}`
    if (line !== undefined && proportionalWidth(longer, size) <= width) lines[lines.length - 1] = longer
    else lines.push(shorten(word, most))
  }
  if (lines.length <= mostLines) return lines
  const last = lines[mostLines - 1] ?? ''
  return [...lines.slice(0, mostLines - 1), `${shorten(last, most - 1).replace(/…$/, '')}…`]
}

/**
 * Puts flags into rows so that no text meets a text or a stem. From right to left: a flag goes below those that its text would meet,
 * and its stem comes down to the left of their stems. What would come below the last row is dropped, the least important first.
 */
export function placeFlags<Of extends Flag>(flags: readonly Of[], size: number, mostRows: number): PlacedFlag<Of>[] {
  let left = [...flags]
  for (;;) {
    const placed = inRows(left, size)
    const tooLow = placed.filter(({ row }) => row >= mostRows)
    if (tooLow.length === 0) return placed
    // Whatever pushed it down may be less important than itself.
    const lowest = Math.max(...tooLow.map(({ row }) => row))
    const through = tooLow.find(({ row }) => row === lowest)
    const inTheWay = left.filter(
      (flag) => through !== undefined && flag.x >= through.x && flag.x <= endOf(through, size),
    )
    const least = Math.min(...inTheWay.map(({ weight }) => weight))
    const dropped = inTheWay.findLast(({ weight }) => weight === least)
    left = left.filter((flag) => flag !== dropped)
  }
}

function inRows<Of extends Flag>(flags: readonly Of[], size: number): PlacedFlag<Of>[] {
  const placed: PlacedFlag<Of>[] = []
  for (const flag of flags.toSorted((one, other) => other.x - one.x)) {
    const end = endOf(flag, size)
    const row = Math.max(-1, ...placed.filter((each) => each.x <= end).map((each) => each.row)) + 1
    placed.push({ ...flag, row })
  }
  return placed.toReversed()
}

function endOf(flag: Flag, size: number): number {
  return flag.x + FLAG_INDENT + fixedWidth(flag.text, size) + FLAG_GAP
}
