export interface Order {
  readonly column: string
  readonly down: boolean
}

/** An order as it stands in the address: `wait`, or `-wait` with the largest first. */
export function orderText({ column, down }: Order): string {
  return `${down ? '-' : ''}${column}`
}

export function orderOf(text: string): Order {
  return { column: text.replace(/^-/, ''), down: text.startsWith('-') }
}

// One collator: localeCompare makes one for each comparison, which a thousand rows feel.
const collator = new Intl.Collator('en', { numeric: true })

/** Sorted, without disturbing what was given; equal ones by their key, so that rows do not dance. */
export function sorted<Row>(
  rows: readonly Row[],
  by: (row: Row) => string | number,
  down: boolean,
  keyOf: (row: Row) => string,
): readonly Row[] {
  const sign = down ? -1 : 1
  return rows
    .map((row) => ({ row, value: by(row), key: keyOf(row) }))
    .toSorted((a, b) => {
      const difference =
        typeof a.value === 'number' && typeof b.value === 'number'
          ? a.value - b.value
          : collator.compare(String(a.value), String(b.value))
      return difference === 0 ? collator.compare(a.key, b.key) : sign * difference
    })
    .map(({ row }) => row)
}
