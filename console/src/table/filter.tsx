import type { Signal } from '@preact/signals'
import type { JSX } from 'preact'
import { number } from '../wording.ts'

/** A box to type into: rows that have every one of the words stay. */
export function Filter(properties: {
  readonly text: Signal<string>
  readonly label: string
  readonly shown: number
  readonly all: number
}): JSX.Element {
  const { text, label, shown, all } = properties
  return (
    <div class="filter">
      <input
        type="search"
        aria-label={label}
        placeholder={label}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
      />
      <span class="hint">{text.value.trim() === '' ? number(all) : `${number(shown)} of ${number(all)}`}</span>
    </div>
  )
}

export function matching<Row>(rows: readonly Row[], text: string, textOf: (row: Row) => string): readonly Row[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  if (words.length === 0) return rows
  return rows.filter((row) => {
    const all = textOf(row).toLowerCase()
    return words.every((word) => all.includes(word))
  })
}
