import type { ComponentChildren, JSX } from 'preact'
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { addressState } from '../address.ts'
import { count } from '../wording.ts'
import { save, toCsv } from './exportRows.ts'
import { type Order, orderOf, orderText, sorted } from './order.ts'
import { windowOf } from './window.ts'

export interface Column<Row> {
  readonly id: string
  readonly title: string
  /** What to sort by. Absent: there is nothing to sort by. */
  readonly by?: (row: Row) => string | number
  readonly cell: (row: Row) => ComponentChildren
  /** A number: stands at the right. */
  readonly number?: true
  /** What the cell says where it does not fit. */
  readonly whole?: (row: Row) => string
  /** What an export says, where that is something else again. */
  readonly text?: (row: Row) => string
}

interface Properties<Row> {
  /** In whose address its order stands. */
  readonly tab: string
  readonly name: string
  readonly label: string
  readonly columns: readonly Column<Row>[]
  readonly rows: readonly Row[]
  readonly keyOf: (row: Row) => string
  readonly first: Order
  /** How many rows there are that were not sent. */
  readonly more: number
}

/**
 * A table that puts only those rows on the page that can be seen, each at its place: a thousand rows cost what thirty do. The row that has
 * the focus stays on the page wherever it goes, so that the focus is not lost when the rows change under it.
 */
export function WindowedTable<Row>(properties: Properties<Row>): JSX.Element {
  const { tab, name, label, columns, rows, keyOf, first, more } = properties
  const sorting = addressState(tab, `${name}.sort`, orderText(first))
  const sortedBy = sorting.value
  const order = useMemo(() => orderOf(sortedBy), [sortedBy])
  const setOrder = (wanted: Order): void => void (sorting.value = orderText(wanted))
  const ordered = useMemo(() => {
    const by = columns.find(({ id }) => id === order.column)?.by
    return by === undefined ? rows : sorted(rows, by, order.down, keyOf)
  }, [rows, columns, order, keyOf])
  const view = useView()
  const focus = useKeptFocus()
  const [from, to] = windowOf(view.top, view.height, view.rowHeight, ordered.length)
  const focused = focus.key.current
  const focusedAt = focused === undefined ? -1 : ordered.findIndex((row) => keyOf(row) === focused)
  const places = Array.from({ length: to - from }, (_, n) => from + n)
  if (focusedAt >= 0 && (focusedAt < from || focusedAt >= to)) places.push(focusedAt)
  return (
    <>
      <div class="box" tabIndex={0} role="group" aria-label={`${label}: rows`} ref={view.box} onScroll={view.look}>
        <div role="table" class={`table ${name}`} aria-label={label} aria-rowcount={ordered.length + 1}>
          <div role="rowgroup" class="head">
            <div role="row" aria-rowindex={1}>
              {columns.map((column) => (
                <Head key={column.id} column={column} order={order} setOrder={setOrder} />
              ))}
            </div>
          </div>
          <div
            role="rowgroup"
            class="rows"
            ref={focus.rows}
            style={{ height: `${ordered.length * view.rowHeight}px` }}
            onFocusIn={focus.note}
            onFocusOut={focus.forget}
          >
            {places.map((place) => {
              const row = ordered[place] as Row
              return (
                <div
                  role="row"
                  key={keyOf(row)}
                  data-key={keyOf(row)}
                  aria-rowindex={place + 2}
                  style={{ top: `${place * view.rowHeight}px` }}
                >
                  {columns.map((column) => (
                    <div
                      role="cell"
                      key={column.id}
                      class={column.number ? 'number' : column.id}
                      data-title={column.title}
                      title={column.whole?.(row)}
                    >
                      {column.cell(row)}
                    </div>
                  ))}
                </div>
              )
            })}
          </div>
        </div>
      </div>
      <p class="bar end">
        {more > 0 && <span class="hint">And {count(more, 'more', 'more')} that are not listed here.</span>}
        {(['csv', 'json'] as const).map((format) => (
          <button
            key={format}
            type="button"
            class="quiet"
            aria-label={`Export ${label} as ${format.toUpperCase()}`}
            onClick={() =>
              format === 'csv'
                ? save(`${name}.csv`, 'text/csv', toCsv(columns, ordered))
                : save(`${name}.json`, 'application/json', JSON.stringify(ordered, undefined, 2))
            }
          >
            {format.toUpperCase()}
          </button>
        ))}
      </p>
    </>
  )
}

function Head<Row>({
  column,
  order,
  setOrder,
}: {
  readonly column: Column<Row>
  readonly order: Order
  readonly setOrder: (order: Order) => void
}): JSX.Element {
  const { id, title, by } = column
  const side = column.number ? 'number' : id
  if (by === undefined) {
    return (
      <div role="columnheader" class={side}>
        <span class={id === 'actions' ? 'unseen' : ''}>{title}</span>
      </div>
    )
  }
  const chosen = order.column === id
  const direction = order.down ? 'descending' : 'ascending'
  return (
    <div role="columnheader" class={side} aria-sort={chosen ? direction : 'none'}>
      <button type="button" onClick={() => setOrder({ column: id, down: chosen ? !order.down : false })}>
        {title}
        <span class="arrow" aria-hidden="true">
          {chosen ? (order.down ? '↓' : '↑') : ''}
        </span>
      </button>
    </div>
  )
}

const ROW_HEIGHT = 36

/** What can be seen of the box. The height of a row is the style's: on a phone it is a card. */
function useView(): {
  readonly box: { current: HTMLDivElement | null }
  readonly top: number
  readonly height: number
  readonly rowHeight: number
  readonly look: () => void
} {
  const box = useRef<HTMLDivElement>(null)
  const rowHeight = useRef(ROW_HEIGHT)
  const [view, setView] = useState({ top: 0, height: 600, rowHeight: ROW_HEIGHT })
  const look = (): void => {
    const element = box.current
    if (element === null) return
    // By a few rows at a time: most scrolling moves what is there already.
    const step = rowHeight.current * 3
    const top = Math.floor(element.scrollTop / step) * step
    const next = { top, height: element.clientHeight + step, rowHeight: rowHeight.current }
    setView((now) =>
      now.top === next.top && now.height === next.height && now.rowHeight === next.rowHeight ? now : next,
    )
  }
  useLayoutEffect(() => {
    const element = box.current as HTMLElement
    // Not with each scrolling: asking for a style has the browser work it out first.
    const measure = (): void => {
      const style = getComputedStyle(element.firstElementChild as HTMLElement)
      rowHeight.current = Number.parseFloat(style.getPropertyValue('--row-height')) || ROW_HEIGHT
      look()
    }
    measure()
    const watch = new ResizeObserver(measure)
    watch.observe(element)
    return () => watch.disconnect()
  }, [])
  return { box, ...view, look }
}

/** Which row has the focus, and on what in it: a browser drops it when it moves the row. */
function useKeptFocus(): {
  readonly rows: { current: HTMLDivElement | null }
  readonly key: { current: string | undefined }
  readonly note: (event: FocusEvent) => void
  readonly forget: (event: FocusEvent) => void
} {
  const rows = useRef<HTMLDivElement>(null)
  const key = useRef<string | undefined>(undefined)
  const what = useRef(0)
  useLayoutEffect(() => {
    if (key.current === undefined || document.activeElement !== document.body) return
    const row = [...(rows.current?.children ?? [])].find(
      (each) => (each as HTMLElement).dataset['key'] === key.current,
    ) as HTMLElement | undefined
    const target =
      row?.querySelectorAll<HTMLElement>('button')[what.current] ?? rows.current?.closest<HTMLElement>('.box')
    if (row === undefined) key.current = undefined
    target?.focus({ preventScroll: true })
  })
  return {
    rows,
    key,
    note(event) {
      const target = event.target as HTMLElement
      const row = target.closest<HTMLElement>('[data-key]')
      key.current = row?.dataset['key']
      what.current = row === null ? 0 : [...row.querySelectorAll('button')].indexOf(target as HTMLButtonElement)
    },
    forget(event) {
      if (event.relatedTarget !== null) key.current = undefined
      // Without a new place the row has moved, and gets it back in the same breath; or the user has clicked beside it.
      else
        setTimeout(() => document.activeElement === document.body && document.hasFocus() && (key.current = undefined))
    },
  }
}
