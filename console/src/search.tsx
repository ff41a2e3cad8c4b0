import { signal, type Signal } from '@preact/signals'
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { addressState } from './address.ts'
import { Empty, Skeleton } from './empty.tsx'
import { get } from './live/request.ts'
import { session } from './live/session.ts'
import { type Column, WindowedTable } from './table/windowed.tsx'

/** What can be asked for. */
export interface Field {
  readonly id: string
  readonly label: string
  readonly type?: 'number' | 'datetime-local'
  readonly example?: string
  /** Viewers cannot search by it. */
  readonly operator?: true
}

interface Properties<Page, Row> {
  /** Where its fields stand in the address. */
  readonly tab: string
  readonly name: string
  readonly title: string
  readonly path: string
  readonly fields: readonly Field[]
  readonly rowsOf: (page: Page) => readonly Row[]
  readonly columns: readonly Column<Row>[]
  readonly keyOf: (row: Row) => string
  readonly empty: string
  readonly about?: ComponentChildren
  /** What can be done with what was found. */
  readonly actions?: ComponentChildren
  /** Said about the pages that were read. */
  readonly note?: (pages: readonly Page[]) => string
}

/** A change of it has all searches of the page asked again: something was done. */
export const searchAgain = signal(0)

/** The state of a field: shared by the form and by what fills it in. */
export function fieldOf(tab: string, name: string, id: string): Signal<string> {
  return addressState(tab, `${name}.${id}`)
}

/** Searches on request, page by page. It is asked when the tab is opened, with what stands in the address. */
export function Search<Page extends { readonly next: string | null }, Row>(
  properties: Properties<Page, Row>,
): JSX.Element {
  const { tab, name, title, path, rowsOf, columns, keyOf, empty, about, actions, note } = properties
  const operator = session.value?.operator === true
  const fields = properties.fields.filter((field) => operator || field.operator !== true)
  const [pages, setPages] = useState<readonly Page[] | undefined>(undefined)
  const [refusal, setRefusal] = useState('')
  const [busy, setBusy] = useState(false)
  // Of several answers in progress the last one counts.
  const turn = useRef(0)
  const ask = async (before: readonly Page[]): Promise<void> => {
    const mine = ++turn.current
    setBusy(true)
    setRefusal('')
    const query = new URLSearchParams()
    for (const { id, type } of fields) {
      const text = fieldOf(tab, name, id).peek().trim()
      if (text !== '') query.set(id, type === 'datetime-local' ? instant(text) : text)
    }
    const cursor = before.at(-1)?.next
    if (cursor != null) query.set('cursor', cursor)
    try {
      const page = await get<Page>(`${path}?${query}`)
      if (mine === turn.current) setPages([...before, page])
    } catch (error) {
      if (mine === turn.current) setRefusal((error as Error).message)
    }
    if (mine === turn.current) setBusy(false)
  }
  useEffect(() => void ask([]), [searchAgain.value])
  const rows = useMemo(() => (pages ?? []).flatMap(rowsOf), [pages])
  const more = pages?.at(-1)?.next != null
  return (
    <section class="card search" aria-labelledby={`${name}-title`}>
      <div class="bar">
        <h2 id={`${name}-title`}>{title}</h2>
        {about !== undefined && <span class="hint">{about}</span>}
      </div>
      <form
        class="fields"
        aria-label={`Search: ${title}`}
        onSubmit={(event) => {
          event.preventDefault()
          void ask([])
        }}
      >
        {fields.map((field) => (
          <FieldInput key={field.id} field={field} value={fieldOf(tab, name, field.id)} />
        ))}
        {fields.length > 0 && (
          <button type="submit" class="primary" disabled={busy}>
            Search
          </button>
        )}
        {actions}
      </form>
      {refusal !== '' && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
      {pages === undefined && refusal === '' && <Skeleton lines={3} />}
      {pages !== undefined && rows.length === 0 && (
        <Empty title={more ? 'Nothing so far.' : 'Nothing is found.'}>
          {more ? 'There is more to look through.' : empty}
        </Empty>
      )}
      {rows.length > 0 && (
        <WindowedTable
          tab={tab}
          name={name}
          label={title}
          columns={columns}
          rows={rows}
          keyOf={keyOf}
          first={{ column: '', down: false }}
          more={0}
        />
      )}
      {pages !== undefined && (more || note !== undefined) && (
        <p class="bar">
          {more && (
            <button type="button" disabled={busy} onClick={() => void ask(pages)}>
              Look further
            </button>
          )}
          <span class="hint">{note?.(pages)}</span>
        </p>
      )}
    </section>
  )
}

/** The time of a field is the browser's; the server wants to know which moment it is. */
function instant(text: string): string {
  const moment = new Date(text)
  return Number.isNaN(moment.getTime()) ? text : moment.toISOString()
}

function FieldInput({ field, value }: { readonly field: Field; readonly value: Signal<string> }): JSX.Element {
  const { label, type, example } = field
  return (
    <label>
      <span>{label}</span>
      {type === 'datetime-local' ? (
        <input type={type} value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />
      ) : (
        <input
          inputMode={type === 'number' ? 'numeric' : 'text'}
          placeholder={example}
          value={value.value}
          onInput={(event) => (value.value = event.currentTarget.value)}
        />
      )}
    </label>
  )
}
