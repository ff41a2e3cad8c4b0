import type { JSX } from 'preact'
import type { DispatcherRow, ShardRow } from 'pg-lockstep/console'
import { OperatorButton } from '../dialog.tsx'
import { Since } from '../since.tsx'
import { type Column, WindowedTable } from '../table/windowed.tsx'
import { count, duration, number } from '../wording.ts'

const keyOf = ({ dispatcher, shard }: ShardRow): string => `${dispatcher} ${shard}`

const COLUMNS: readonly Column<ShardRow>[] = [
  {
    id: 'key',
    title: 'Shard',
    by: (row) => keyOf(row),
    cell: ({ dispatcher, shard }) => (
      <code>
        {dispatcher} {shard}
      </code>
    ),
    whole: keyOf,
  },
  {
    id: 'owner',
    title: 'Owner',
    by: ({ owner }) => owner ?? '',
    cell: ({ owner }) => (owner === null ? <span class="pill urgent">none</span> : owner),
    whole: ({ owner }) => owner ?? 'No process delivers this shard.',
  },
  { id: 'fence', title: 'Fence', number: true, cell: ({ fence }) => fence ?? '', whole: ({ fence }) => fence ?? '' },
  {
    id: 'lag',
    title: 'To deliver',
    number: true,
    by: ({ lagEvents }) => lagEvents,
    cell: ({ lagEvents, lagEstimated }) => `${lagEstimated ? 'about ' : ''}${number(lagEvents)}`,
    text: ({ lagEvents }) => String(lagEvents),
  },
  {
    id: 'oldest',
    title: 'Behind',
    number: true,
    by: ({ lagMs }) => lagMs,
    cell: ({ lagMs, lagEvents }) => (lagEvents === 0 ? '' : duration(lagMs)),
  },
  {
    id: 'parked',
    title: 'Waiting streams',
    number: true,
    by: ({ parkedStreams }) => parkedStreams,
    cell: ({ parkedStreams }) => number(parkedStreams),
  },
  {
    id: 'held',
    title: 'Held streams',
    number: true,
    by: ({ heldStreams }) => heldStreams,
    cell: ({ heldStreams }) => number(heldStreams),
  },
  {
    id: 'moved',
    title: 'Last moved',
    number: true,
    by: ({ movedAt }) => (movedAt === null ? 0 : -Date.parse(movedAt)),
    cell: ({ movedAt }) => (movedAt === null ? 'never' : <Since at={movedAt} />),
    text: ({ movedAt }) => movedAt ?? '',
  },
]

/** Who delivers what, and how far it is. */
export function Shards({
  dispatchers,
  shards,
  onRemove,
}: {
  readonly dispatchers: readonly DispatcherRow[]
  readonly shards: readonly ShardRow[]
  readonly onRemove: (dispatcher: string) => void
}): JSX.Element {
  const events = shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0)
  const orphans = shards.filter(({ owner }) => owner === null).length
  return (
    <section class="card shards-box" aria-labelledby="shards">
      <div class="bar">
        <h2 id="shards">Shards</h2>
        <span class="hint">
          {count(shards.length, 'shard')}, {count(events, 'event')} to deliver
          {orphans > 0 && `, ${number(orphans)} without an owner`}
        </span>
      </div>
      {dispatchers.map(({ name, shards: own, topics }) => (
        <div class="bar dispatcher" key={name}>
          <p class="hint">
            <code>{name}</code>: {count(own, 'shard')}, {topics === null ? 'all topics' : `topics ${topics.join(', ')}`}
          </p>
          {shards.every(({ dispatcher, owner }) => dispatcher !== name || owner === null) && (
            <OperatorButton label={`Remove the dispatcher ${name}`} onClick={() => onRemove(name)}>
              Remove …
            </OperatorButton>
          )}
        </div>
      ))}
      <WindowedTable
        tab="outbox"
        name="shards"
        label="Shards"
        columns={COLUMNS}
        rows={shards}
        keyOf={keyOf}
        // Those without an owner first: no process delivers them.
        first={{ column: 'owner', down: false }}
        more={0}
      />
    </section>
  )
}
