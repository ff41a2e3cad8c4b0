import { lengthOf, wrap } from './wrap.ts'

const GAP = 2
/** In a narrower column a text is only a pile of words: it rather runs over the edge. */
const MIN_LAST_COLUMN = 24
/** On a narrower terminal, what does not fit is not put in columns. */
const NARROW = 60
const INDENT = 4

/**
 * Text in columns. The last is as wide as the terminal lets it be and continues below itself; the others are as wide as they need. On a
 * narrow terminal, where they do not fit, each row is a text of its own, indented from its second line on.
 */
export function table(rows: readonly (readonly string[])[], columns = Infinity): string {
  const count = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: Math.max(0, count - 1) }, (_, index) =>
    Math.max(0, ...rows.map((row) => lengthOf(row[index] ?? ''))),
  )
  const indent = widths.reduce((sum, width) => sum + width + GAP, 0)
  const longest = Math.max(0, ...rows.map((row) => lengthOf(row[count - 1] ?? '')))
  if (columns < NARROW && indent + Math.min(longest, MIN_LAST_COLUMN) > columns) return stacked(rows, columns)
  const lastWidth = Math.max(MIN_LAST_COLUMN, columns - indent)
  return rows
    .flatMap((row) => {
      const head = widths.map((width, index) => pad(row[index] ?? '', width + GAP)).join('')
      const [first = '', ...rest] = wrap(row[count - 1] ?? '', lastWidth)
      return [`${head}${first}`.trimEnd(), ...rest.map((line) => ' '.repeat(indent) + line)]
    })
    .join('\n')
}

/** A row begins where its first cell does; rows that continue the one above have none. */
function stacked(rows: readonly (readonly string[])[], columns: number): string {
  return rows
    .flatMap((row) => {
      const cells = row.filter((cell) => cell.trim() !== '')
      const lead = /^ */.exec(row[0] ?? '')?.[0] ?? ''
      const own = (row[0] ?? '').trim() === '' && cells.length > 0 ? ' '.repeat(INDENT) : lead
      const lines = wrap(cells.join('  '), Math.max(1, columns - INDENT))
      return lines.length === 0 ? [''] : lines.map((line, place) => (place === 0 ? own : ' '.repeat(INDENT)) + line)
    })
    .join('\n')
}

function pad(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - lengthOf(text)))
}
