import type { Column } from './windowed.tsx'

/** A program for tables would run what begins like a formula. */
const FORMULA = /^[=+\-@\t\r]/

/** The rows as comma-separated values, with a line of titles. */
export function toCsv<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const shown = columns.filter(({ id }) => id !== 'actions')
  const lines = rows.map((row) => shown.map((column) => quoted(textOf(column, row))))
  return [shown.map(({ title }) => quoted(title)), ...lines].map((line) => `${line.join(',')}\r\n`).join('')
}

function textOf<Row>({ text, whole, by }: Column<Row>, row: Row): string {
  return String(text?.(row) ?? whole?.(row) ?? by?.(row) ?? '')
}

function quoted(text: string): string {
  const harmless = FORMULA.test(text) && !/^-?\d+(?:\.\d+)?$/.test(text) ? `'${text}` : text
  return `"${harmless.replaceAll('"', '""')}"`
}

/** Has the browser save a file. */
export function save(name: string, type: string, text: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type }))
  link.download = name
  link.click()
  // Once the browser has begun to read it.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}
