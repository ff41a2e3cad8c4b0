import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import type { LeaseRow } from 'pg-lockstep/console'
import { addressState } from '../address.ts'
import { OperatorButton, ReadOnlyNote } from '../dialog.tsx'
import { Empty, Skeleton } from '../empty.tsx'
import { received } from '../live/stream.ts'
import { Since, Until } from '../since.tsx'
import { Filter, matching } from '../table/filter.tsx'
import { type Column, WindowedTable } from '../table/windowed.tsx'
import { count, number } from '../wording.ts'
import { AllLeases } from './allLeases.tsx'
import { History, HistoryOf, Release } from './leaseDialogs.tsx'

const filter = addressState('leases', 'q')
/** `shown` or empty. */
const own = addressState('leases', 'own')
const dialog = signal<{ readonly kind: 'history' | 'release' | 'ask'; readonly key: string } | undefined>(undefined)

/** What Lockstep holds for itself: shards, members and seats of dispatchers. */
const isOwn = ({ key }: LeaseRow): boolean => key.startsWith('Outbox:')

const keyOf = ({ key }: LeaseRow): string => key
const first = ({ holders }: LeaseRow): LeaseRow['holders'][number] | undefined => holders[0]

function textOf({ key, holders, waiters }: LeaseRow): string {
  return [
    key,
    ...holders.map(({ holder, about }) => `${holder} ${about ?? ''}`),
    ...waiters.map(({ holder }) => holder),
  ].join(' ')
}

const COLUMNS: readonly Column<LeaseRow>[] = [
  { id: 'key', title: 'Key', by: keyOf, cell: ({ key }) => <code>{key}</code>, whole: keyOf },
  {
    id: 'holder',
    title: 'Held by',
    by: (row) => first(row)?.holder ?? '',
    cell: (row) => (
      <>
        {first(row)?.holder ?? 'none'}
        {row.holders.length > 1 && ` and ${row.holders.length - 1} more`}
        {row.permits > 1 && <span class="hint"> {`${row.holders.length} of ${row.permits} permits`}</span>}
        {(first(row)?.about ?? null) !== null && <span class="hint"> {first(row)?.about}</span>}
      </>
    ),
    whole: ({ holders }) =>
      holders.map(({ holder, about }) => (about === null ? holder : `${holder} (${about})`)).join(', '),
  },
  {
    id: 'fence',
    title: 'Fence',
    number: true,
    by: (row) => first(row)?.fence ?? '',
    cell: (row) => first(row)?.fence ?? '',
    whole: (row) => first(row)?.fence ?? '',
  },
  {
    id: 'since',
    title: 'Held for',
    number: true,
    // The longest one has the smallest beginning.
    by: (row) => -Date.parse(first(row)?.since ?? '9999-01-01'),
    cell: (row) => (first(row) === undefined ? '' : <Since at={first(row)?.since ?? ''} />),
    text: (row) => first(row)?.since ?? '',
  },
  {
    id: 'until',
    title: 'Ends in',
    number: true,
    by: (row) => Date.parse(first(row)?.until ?? '9999-01-01'),
    cell: (row) => (first(row) === undefined ? '' : <Until at={first(row)?.until ?? ''} past="expired" />),
    text: (row) => first(row)?.until ?? '',
  },
  {
    id: 'waiters',
    title: 'Waiting',
    number: true,
    by: ({ waiters }) => waiters.length,
    cell: ({ waiters }) => (waiters.length === 0 ? '0' : <span class="pill note">{number(waiters.length)}</span>),
    whole: ({ waiters }) => waiters.map(({ holder }) => holder).join(', '),
    text: ({ waiters }) => String(waiters.length),
  },
  {
    id: 'actions',
    title: 'Actions',
    cell: ({ key }) => (
      <>
        <button
          type="button"
          aria-label={`History of ${key}`}
          onClick={() => (dialog.value = { kind: 'history', key })}
        >
          History
        </button>
        <OperatorButton label={`Release ${key}`} onClick={() => (dialog.value = { kind: 'release', key })}>
          Release …
        </OperatorButton>
      </>
    ),
  },
]

export function Leases(): JSX.Element {
  const now = received.leases.value
  const text = filter.value
  const unfolded = own.value !== ''
  const listed = useMemo(() => (now?.snapshot.leases ?? []).filter((row) => unfolded || !isOwn(row)), [now, unfolded])
  const rows = useMemo(() => matching(listed, text, textOf), [listed, text])
  if (now === undefined) return <Skeleton />
  const { leases, more } = now.snapshot
  const folded = leases.length - listed.length
  const owned = leases.filter(isOwn).length
  const shown = dialog.value
  const close = (): void => void (dialog.value = undefined)
  return (
    <>
      <p class="bar end">
        <button type="button" onClick={() => (dialog.value = { kind: 'ask', key: '' })}>
          History of a key …
        </button>
      </p>
      {leases.length === 0 || (listed.length === 0 && more === 0 && !unfolded) ? (
        <Empty title="No lease is held.">
          A lease is for work that is longer than a transaction: <code>lockstep.lease(key, …)</code>. While one is held
          it is shown here, with its fence and who waits for it.
        </Empty>
      ) : (
        <section class="card" aria-labelledby="leases">
          <div class="bar">
            <h2 id="leases">Leases</h2>
            <Filter
              text={filter}
              label="Filter by key, holder or metadata"
              shown={rows.length}
              all={listed.length + more}
            />
          </div>
          <ReadOnlyNote />
          {rows.length === 0 ? (
            <Empty title="No lease matches.">Remove a word from the filter.</Empty>
          ) : (
            <WindowedTable
              tab="leases"
              name="leases"
              label="Leases"
              columns={COLUMNS}
              rows={rows}
              keyOf={keyOf}
              first={{ column: 'key', down: false }}
              more={more}
            />
          )}
        </section>
      )}
      {owned > 0 && (
        <p class="bar">
          <label class="check">
            <input
              type="checkbox"
              checked={unfolded}
              onChange={(event) => (own.value = event.currentTarget.checked ? 'shown' : '')}
            />
            Show what Lockstep holds for itself: {count(owned, 'lease')} of dispatchers
          </label>
          {folded > 0 && text !== '' && <span class="hint">They are not searched.</span>}
        </p>
      )}
      {more > 0 && text.trim() !== '' && <AllLeases text={text} />}
      {shown?.kind === 'history' && <History leaseKey={shown.key} onClose={close} />}
      {shown?.kind === 'ask' && (
        <HistoryOf onAsk={(key) => (dialog.value = { kind: 'history', key })} onClose={close} />
      )}
      {shown?.kind === 'release' && (
        <Release
          leaseKey={shown.key}
          lease={leases.find(({ key }) => key === shown.key)}
          onClose={close}
          onDone={() => (dialog.value = { kind: 'history', key: shown.key })}
        />
      )}
    </>
  )
}
