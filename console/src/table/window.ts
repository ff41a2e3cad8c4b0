/** Rows above and below what can be seen, so that scrolling finds them there. */
const MARGIN = 3

/** The first row to be on the page, and the one after the last. */
export function windowOf(top: number, height: number, rowHeight: number, rows: number): readonly [number, number] {
  const from = Math.min(Math.max(0, Math.floor(top / rowHeight) - MARGIN), Math.max(0, rows - 1))
  const to = Math.min(rows, Math.ceil((top + height) / rowHeight) + MARGIN)
  return [from, Math.max(from, to)]
}
