import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { FoundLease, LeaseSearch } from 'pg-lockstep/console'
import { get } from '../live/request.ts'
import { Since, Until } from '../since.tsx'
import { type Column, WindowedTable } from '../table/windowed.tsx'
import { number } from '../wording.ts'

/** A search is asked when nothing was typed for this long. */
const TYPED_MS = 400

const COLUMNS: readonly Column<FoundLease>[] = [
  { id: 'key', title: 'Key', by: ({ key }) => key, cell: ({ key }) => <code>{key}</code>, whole: ({ key }) => key },
  {
    id: 'holder',
    title: 'Held by',
    by: ({ holder }) => holder,
    cell: ({ holder, about }) => (
      <>
        {holder}
        {about !== null && <span class="hint"> {about}</span>}
      </>
    ),
    whole: ({ holder, about }) => (about === null ? holder : `${holder} (${about})`),
  },
  { id: 'fence', title: 'Fence', number: true, by: ({ fence }) => fence, cell: ({ fence }) => fence },
  {
    id: 'since',
    title: 'Held for',
    number: true,
    by: ({ since }) => -Date.parse(since),
    cell: ({ since }) => <Since at={since} />,
    text: ({ since }) => since,
  },
  {
    id: 'until',
    title: 'Ends in',
    number: true,
    by: ({ until }) => Date.parse(until),
    cell: ({ until }) => <Until at={until} past="expired" />,
    text: ({ until }) => until,
  },
  {
    id: 'waiters',
    title: 'Waiting',
    number: true,
    by: ({ waiters }) => waiters,
    cell: ({ waiters }) => number(waiters),
  },
]

/** Where not all leases are listed: the server looks through the others. */
export function AllLeases({ text }: { readonly text: string }): JSX.Element {
  const [found, setFound] = useState<LeaseSearch | undefined>(undefined)
  const [refusal, setRefusal] = useState('')
  useEffect(() => {
    let current = true
    const timer = setTimeout(() => {
      get<LeaseSearch>(`api/leases/search?${new URLSearchParams({ q: text })}`).then(
        (answer) => {
          if (!current) return
          setFound(answer)
          setRefusal('')
        },
        (error: unknown) => current && setRefusal((error as Error).message),
      )
    }, TYPED_MS)
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [text])
  return (
    <section class="card" aria-labelledby="all-leases">
      <div class="bar">
        <h2 id="all-leases">Of all leases</h2>
        <span class="hint">Not all are listed above. These were looked for among all of them.</span>
      </div>
      {refusal !== '' && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
      {found?.leases.length === 0 && <p class="calm">No lease has all of these words.</p>}
      {found !== undefined && found.leases.length > 0 && (
        <WindowedTable
          tab="leases"
          name="found"
          label="Of all leases"
          columns={COLUMNS}
          rows={found.leases}
          keyOf={({ key, slot }) => `${key} ${slot}`}
          first={{ column: 'key', down: false }}
          more={0}
        />
      )}
      {found?.more === true && <p class="hint">There are more: add a word.</p>}
    </section>
  )
}
