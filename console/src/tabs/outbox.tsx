import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import type { OutboxSnapshot, ParkedRow } from 'pg-lockstep/console'
import { addressState } from '../address.ts'
import { OperatorButton, ReadOnlyNote } from '../dialog.tsx'
import { Empty, Skeleton } from '../empty.tsx'
import { received } from '../live/stream.ts'
import { Since, Until } from '../since.tsx'
import { Filter, matching } from '../table/filter.tsx'
import { type Column, WindowedTable } from '../table/windowed.tsx'
import { bytes, clock, count, number } from '../wording.ts'
import { Shards } from './shards.tsx'
import { ManyDialog } from './manyDialog.tsx'
import { PayloadDialog } from './payloadDialog.tsx'
import { PauseAny, RemoveDialog, StreamActionDialog, type Verb } from './streamDialogs.tsx'

const filter = addressState('outbox', 'q')
const dialog = signal<
  | { readonly kind: Verb | 'payload'; readonly row: ParkedRow }
  | { readonly kind: 'pause-any' | 'many' }
  | { readonly kind: 'remove'; readonly name: string }
  | undefined
>(undefined)

const nameOf = ({ topic, key }: ParkedRow): string => `${topic}/${key}`
const keyOf = ({ dispatcher, topic, key }: ParkedRow): string => JSON.stringify([dispatcher, topic, key])
const textOf = (row: ParkedRow): string => `${nameOf(row)} ${row.dispatcher} ${row.state} ${row.reason ?? ''}`

const STYLES = { parked: 'note', held: '', blocked: 'urgent', paused: '' } as const

const COLUMNS: readonly Column<ParkedRow>[] = [
  { id: 'key', title: 'Stream', by: nameOf, cell: (row) => <code>{nameOf(row)}</code>, whole: nameOf },
  {
    id: 'dispatcher',
    title: 'Dispatcher',
    by: ({ dispatcher }) => dispatcher,
    cell: ({ dispatcher }) => dispatcher,
    whole: ({ dispatcher }) => dispatcher,
  },
  {
    id: 'state',
    title: 'State',
    by: ({ state }) => state,
    cell: ({ state }) => <span class={`pill ${STYLES[state]}`}>{state}</span>,
  },
  {
    id: 'attempts',
    title: 'Tries',
    number: true,
    by: ({ attempts }) => attempts,
    cell: (row) => number(row.attempts),
  },
  { id: 'events', title: 'Events', number: true, by: ({ events }) => events, cell: (row) => number(row.events) },
  {
    id: 'head',
    title: 'Head',
    number: true,
    by: ({ head }) => head ?? 0,
    cell: ({ head }) => (head === null ? '' : `#${head}`),
  },
  {
    id: 'since',
    title: 'Since',
    number: true,
    by: ({ since }) => -Date.parse(since),
    cell: ({ since }) => <Since at={since} />,
    text: ({ since }) => since,
  },
  {
    id: 'next',
    title: 'Next try',
    number: true,
    by: ({ nextAttemptAt }) => Date.parse(nextAttemptAt ?? '9999-01-01'),
    cell: ({ nextAttemptAt, state }) =>
      (state === 'parked' || state === 'held') && nextAttemptAt !== null ? (
        <Until at={nextAttemptAt} past="a moment" />
      ) : (
        ''
      ),
    text: ({ nextAttemptAt }) => nextAttemptAt ?? '',
  },
  {
    id: 'reason',
    title: 'Reason',
    by: ({ reason }) => reason ?? '',
    cell: ({ reason }) => reason ?? '',
    whole: ({ reason }) => reason ?? '',
  },
  {
    id: 'actions',
    title: 'Actions',
    cell: (row) => (
      <>
        <Act row={row} kind={row.state === 'paused' ? 'resume' : 'retry'} />
        <Act row={row} kind="skip" />
        {row.state !== 'paused' && <Act row={row} kind="pause" />}
        <Act row={row} kind="payload" />
      </>
    ),
  },
]

const TITLES = { retry: 'Retry', skip: 'Skip', pause: 'Pause', resume: 'Resume', payload: 'Payload' } as const

function Act({ row, kind }: { readonly row: ParkedRow; readonly kind: Verb | 'payload' }): JSX.Element {
  return (
    <OperatorButton label={`${TITLES[kind]} ${nameOf(row)}`} onClick={() => (dialog.value = { kind, row })}>
      {TITLES[kind]}
    </OperatorButton>
  )
}

export function Outbox(): JSX.Element {
  const now = received.outbox.value
  const text = filter.value
  const rows = useMemo(() => matching(now?.snapshot.parked ?? [], text, textOf), [now, text])
  if (now === undefined) return <Skeleton />
  const { dispatchers, shards, parked, more, segments } = now.snapshot
  const close = (): void => void (dialog.value = undefined)
  const shown = dialog.value
  return (
    <>
      {shards.length === 0 ? (
        <Empty title="No dispatcher has run yet.">
          Events that are put into the outbox with <code>tx.enqueue()</code> are delivered by a dispatcher:{' '}
          <code>lockstep.outbox.dispatcher(…).run()</code>. Its shards are shown here, with who delivers them and how
          far they are.
        </Empty>
      ) : (
        <Shards
          dispatchers={dispatchers}
          shards={shards}
          onRemove={(name) => (dialog.value = { kind: 'remove', name })}
        />
      )}
      <section class="card" aria-labelledby="parked">
        <div class="bar">
          <h2 id="parked">Streams that wait</h2>
          {parked.length > 0 && (
            <Filter
              text={filter}
              label="Filter by stream, state or reason"
              shown={rows.length}
              all={parked.length + more}
            />
          )}
          {parked.length > 0 && (
            <OperatorButton label="Retry or skip many" onClick={() => (dialog.value = { kind: 'many' })}>
              Retry or skip many …
            </OperatorButton>
          )}
          <OperatorButton label="Pause a stream" onClick={() => (dialog.value = { kind: 'pause-any' })}>
            Pause a stream …
          </OperatorButton>
        </div>
        <ReadOnlyNote />
        {parked.length === 0 && (
          <Empty title="No stream waits.">
            When the sink refuses an event, its stream is parked and the others continue. It is listed here with the
            reason until the sink accepts the event or an operator decides.
          </Empty>
        )}
        {parked.length > 0 && rows.length === 0 && (
          <Empty title="No stream matches.">Remove a word from the filter.</Empty>
        )}
        {rows.length > 0 && (
          <WindowedTable
            tab="outbox"
            name="parked"
            label="Streams that wait"
            columns={COLUMNS}
            rows={rows}
            keyOf={keyOf}
            first={{ column: 'since', down: true }}
            more={more}
          />
        )}
      </section>
      <Segments segments={segments} />
      {shown?.kind === 'pause-any' && (
        <PauseAny dispatchers={[...new Set(shards.map(({ dispatcher }) => dispatcher))]} onClose={close} />
      )}
      {shown?.kind === 'many' && <ManyDialog what="parked" onClose={close} />}
      {shown?.kind === 'remove' && <RemoveDialog name={shown.name} onClose={close} />}
      {shown?.kind === 'payload' && (
        <PayloadDialog
          name={nameOf(shown.row)}
          path="api/outbox/payload"
          query={{ dispatcher: shown.row.dispatcher, topic: shown.row.topic, key: shown.row.key }}
          onClose={close}
        />
      )}
      {shown !== undefined && 'row' in shown && shown.kind !== 'payload' && (
        <StreamActionDialog verb={shown.kind} row={shown.row} onClose={close} />
      )}
    </>
  )
}

function Segments({ segments }: { readonly segments: OutboxSnapshot['segments'] }): JSX.Element | null {
  if (segments.length === 0) return null
  const total = segments.reduce((sum, segment) => sum + segment.bytes, 0)
  return (
    <section class="card" aria-labelledby="segments">
      <details>
        <summary>
          <h2 id="segments">Segments</h2>{' '}
          <span class="hint">
            {count(segments.length, 'segment')}, {bytes(total)}: events are stored and removed by segment
          </span>
        </summary>
        <ul class="plain">
          {segments.map((segment) => (
            <li key={segment.number}>
              #{segment.number} · {bytes(segment.bytes)} · opened {clock(segment.openedAt)}
              {segment.leftAt !== null && ` · left ${clock(segment.leftAt)}`}
              {segment.current && <span class="pill good">written to</span>}
            </li>
          ))}
        </ul>
      </details>
    </section>
  )
}
