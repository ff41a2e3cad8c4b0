import { lengthOf, wrap } from './wrap.ts'

const GAP = 2
/** In a narrower column a text is only a pile of words: it rather runs over the edge. */
const MIN_LAST_COLUMN = 24

/** Text in columns. The last is as wide as the terminal lets it be and goes on below itself; the others are as wide as they need. */
export function table(rows: readonly (readonly string[])[], columns = Infinity): string {
  const count = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: Math.max(0, count - 1) }, (_, index) =>
    Math.max(0, ...rows.map((row) => lengthOf(row[index] ?? ''))),
  )
  const indent = widths.reduce((sum, width) => sum + width + GAP, 0)
  const lastWidth = Math.max(MIN_LAST_COLUMN, columns - indent)
  return rows
    .flatMap((row) => {
      const head = widths.map((width, index) => pad(row[index] ?? '', width + GAP)).join('')
      const [first = '', ...rest] = wrap(row[count - 1] ?? '', lastWidth)
      return [`${head}${first}`.trimEnd(), ...rest.map((line) => ' '.repeat(indent) + line)]
    })
    .join('\n')
}

function pad(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - lengthOf(text)))
}
