import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import type { DeadLetterList, DeadLetterRow, EventList, EventRow } from 'pg-lockstep/console'
import { OperatorButton, ReadOnlyNote } from '../dialog.tsx'
import { session } from '../live/session.ts'
import { type Field, fieldOf, Search, searchAgain } from '../search.tsx'
import type { Column } from '../table/windowed.tsx'
import { bytes, clock, number } from '../wording.ts'
import { ManyDialog } from './manyDialog.tsx'
import { PayloadDialog } from './payloadDialog.tsx'
import { ReplayDialog } from './replayDialog.tsx'

const dialog = signal<
  | { readonly kind: 'payload'; readonly row: EventRow }
  | { readonly kind: 'redrive' }
  | { readonly kind: 'replay'; readonly topic: string; readonly key: string; readonly seq: number }
  | undefined
>(undefined)

const nameOf = ({ topic, key, seq }: EventRow | DeadLetterRow): string => `${topic}/${key} #${seq}`

const FIELDS: readonly Field[] = [
  { id: 'topic', label: 'Topic' },
  { id: 'key', label: 'Key' },
  { id: 'fromSeq', label: 'From number', type: 'number' },
  { id: 'toSeq', label: 'To number', type: 'number' },
  { id: 'from', label: 'From', type: 'datetime-local' },
  { id: 'to', label: 'Before', type: 'datetime-local' },
  { id: 'header', label: 'Header', example: 'trace-id', operator: true },
  { id: 'value', label: 'Its value', operator: true },
]

const DEAD_FIELDS: readonly Field[] = [
  { id: 'dispatcher', label: 'Dispatcher' },
  { id: 'topic', label: 'Topic' },
  { id: 'key', label: 'Key' },
  { id: 'error', label: 'Part of the reason' },
]

/** Shows one stream: what a click on its name does. */
function showStream({ topic, key }: EventRow): void {
  for (const { id } of FIELDS) fieldOf('events', 'events', id).value = ''
  fieldOf('events', 'events', 'topic').value = topic
  fieldOf('events', 'events', 'key').value = key
  searchAgain.value++
}

const COLUMNS: readonly Column<EventRow>[] = [
  { id: 'key', title: 'Event', by: nameOf, cell: (row) => <code>{nameOf(row)}</code>, whole: nameOf },
  {
    id: 'position',
    title: 'Position',
    number: true,
    by: ({ position }) => position,
    cell: ({ position }) => position,
  },
  {
    id: 'at',
    title: 'Enqueued',
    by: ({ enqueuedAt }) => Date.parse(enqueuedAt),
    cell: ({ enqueuedAt }) => clock(enqueuedAt),
    text: ({ enqueuedAt }) => enqueuedAt,
  },
  {
    id: 'size',
    title: 'Size',
    number: true,
    by: ({ storedBytes }) => storedBytes,
    cell: ({ storedBytes, erased }) => (erased ? 'erased' : bytes(storedBytes)),
  },
  { id: 'event', title: 'Id', by: ({ id }) => id, cell: ({ id }) => <code>{id}</code>, whole: ({ id }) => id },
  {
    id: 'actions',
    title: 'Actions',
    cell: (row) => (
      <>
        <button type="button" aria-label={`Stream of ${nameOf(row)}`} onClick={() => showStream(row)}>
          Stream
        </button>
        <OperatorButton label={`Payload of ${nameOf(row)}`} onClick={() => (dialog.value = { kind: 'payload', row })}>
          Payload
        </OperatorButton>
        {(session.value?.replayTo.length ?? 0) > 0 && (
          <OperatorButton
            label={`Replay from ${nameOf(row)}`}
            onClick={() => (dialog.value = { kind: 'replay', topic: row.topic, key: row.key, seq: row.seq })}
          >
            Replay …
          </OperatorButton>
        )}
      </>
    ),
  },
]

const DEAD_COLUMNS: readonly Column<DeadLetterRow>[] = [
  { id: 'key', title: 'Event', by: nameOf, cell: (row) => <code>{nameOf(row)}</code>, whole: nameOf },
  { id: 'dispatcher', title: 'Dispatcher', by: (row) => row.dispatcher, cell: (row) => row.dispatcher },
  {
    id: 'died',
    title: 'Given up',
    by: ({ diedAt }) => Date.parse(diedAt),
    cell: ({ diedAt }) => clock(diedAt),
    text: ({ diedAt }) => diedAt,
  },
  {
    id: 'reason',
    title: 'Reason',
    by: ({ reason }) => reason ?? '',
    cell: ({ reason }) => reason ?? '',
    whole: ({ reason }) => reason ?? '',
  },
  {
    id: 'usable',
    title: 'Can be redriven',
    by: ({ usable }) => Number(usable),
    cell: ({ usable }) => (usable ? 'yes' : <span class="pill urgent">no</span>),
    text: ({ usable }) => (usable ? 'yes' : 'no'),
  },
]

/** Retained events and dead letters: to find one, and to act on many. */
export function Events(): JSX.Element {
  const shown = dialog.value
  const close = (): void => void (dialog.value = undefined)
  return (
    <>
      <Search<EventList, EventRow>
        tab="events"
        name="events"
        title="Events"
        path="api/events"
        fields={FIELDS}
        rowsOf={({ events }) => events}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        empty="No retained event fits."
        about="Retained events, the newest first. A topic and a key together are found at once."
        note={(pages) => `${number(pages.reduce((sum, { scanned }) => sum + scanned, 0))} positions were looked at.`}
      />
      <Search<DeadLetterList, DeadLetterRow>
        tab="events"
        name="dead"
        title="Dead letters"
        path="api/dead"
        fields={DEAD_FIELDS}
        rowsOf={({ deadLetters }) => deadLetters}
        columns={DEAD_COLUMNS}
        keyOf={({ dispatcher, id }) => `${dispatcher} ${id}`}
        empty="An event that a dispatcher gives up is kept here, with the reason."
        actions={
          <OperatorButton label="Redrive dead letters" onClick={() => (dialog.value = { kind: 'redrive' })}>
            Redrive …
          </OperatorButton>
        }
      />
      <ReadOnlyNote />
      {shown?.kind === 'payload' && (
        <PayloadDialog
          name={nameOf(shown.row)}
          path="api/events/payload"
          query={{ topic: shown.row.topic, key: shown.row.key, seq: String(shown.row.seq) }}
          onClose={close}
        />
      )}
      {shown?.kind === 'redrive' && <ManyDialog what="dead" tab="events" onClose={close} />}
      {shown?.kind === 'replay' && <ReplayDialog {...shown} onClose={close} />}
    </>
  )
}
