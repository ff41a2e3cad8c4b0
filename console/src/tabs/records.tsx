import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type {
  AuditList,
  AuditRow,
  ConsumerList,
  ConsumerRow,
  IdempotencyList,
  IdempotencyRow,
  InboxList,
  InboxRow,
  RolloutList,
  RolloutRow,
} from 'pg-lockstep/console'
import { Empty, Skeleton } from '../empty.tsx'
import { get } from '../live/request.ts'
import { fieldOf, Search, searchAgain } from '../search.tsx'
import { type Column, WindowedTable } from '../table/windowed.tsx'
import { bytes, clock, duration, number } from '../wording.ts'

const aboutOf = ({ topic, key, seq }: AuditRow): string =>
  [topic === null ? key : `${topic}/${key ?? '*'}`, seq === null ? null : `#${seq}`].filter(Boolean).join(' ')
const byOf = ({ by, role, address }: AuditRow): string =>
  `${by ?? role ?? 'a dispatcher'}${address === null ? '' : ` from ${address}`}`

const AUDIT: readonly Column<AuditRow>[] = [
  {
    id: 'at',
    title: 'When',
    by: ({ at }) => Date.parse(at),
    cell: ({ at }) => clock(at),
    text: ({ at }) => at,
  },
  { id: 'verb', title: 'What', by: ({ verb }) => verb, cell: ({ verb }) => <span class="pill">{verb}</span> },
  { id: 'key', title: 'Of', by: aboutOf, cell: (row) => <code>{aboutOf(row)}</code>, whole: aboutOf },
  { id: 'dispatcher', title: 'Dispatcher', by: (row) => row.dispatcher ?? '', cell: (row) => row.dispatcher ?? '' },
  { id: 'by', title: 'Who', by: byOf, cell: byOf, whole: byOf },
  { id: 'role', title: 'Role', by: ({ role }) => role ?? '', cell: ({ role }) => role ?? '' },
  {
    id: 'reason',
    title: 'Reason',
    by: ({ reason }) => reason ?? '',
    cell: ({ reason }) => reason ?? '',
    whole: ({ reason }) => reason ?? '',
  },
]

/** Shows the positions of one consumer. */
function showPositions({ name }: ConsumerRow): void {
  for (const id of ['topic', 'key']) fieldOf('records', 'inbox', id).value = ''
  fieldOf('records', 'inbox', 'consumer').value = name
  searchAgain.value++
}

const topicsOf = ({ dispatched, topics }: ConsumerRow): string =>
  dispatched ? (topics === null ? 'all' : topics.join(', ')) : 'from a broker'

const CONSUMERS: readonly Column<ConsumerRow>[] = [
  { id: 'key', title: 'Consumer', by: ({ name }) => name, cell: ({ name }) => name, whole: ({ name }) => name },
  { id: 'topics', title: 'Topics', by: topicsOf, cell: topicsOf, whole: topicsOf },
  {
    id: 'lag',
    title: 'To deliver',
    number: true,
    by: ({ lagEvents }) => lagEvents,
    cell: ({ dispatched, lagEvents }) => (dispatched ? number(lagEvents) : ''),
  },
  {
    id: 'oldest',
    title: 'Behind',
    number: true,
    by: ({ lagMs }) => lagMs,
    cell: ({ lagMs, lagEvents }) => (lagEvents === 0 ? '' : duration(lagMs)),
    text: ({ lagMs }) => String(lagMs),
  },
  {
    id: 'parked',
    title: 'Waiting streams',
    number: true,
    by: ({ parkedStreams }) => parkedStreams,
    cell: ({ name, parkedStreams }) =>
      parkedStreams === 0 ? '0' : <a href={`#outbox?q=${encodeURIComponent(name)}`}>{number(parkedStreams)}</a>,
    text: ({ parkedStreams }) => String(parkedStreams),
  },
  {
    id: 'orphans',
    title: 'Ownerless shards',
    number: true,
    by: ({ shardsWithoutOwner }) => shardsWithoutOwner,
    cell: ({ shardsWithoutOwner }) => number(shardsWithoutOwner),
  },
  {
    id: 'streams',
    title: 'Positions',
    number: true,
    by: ({ streams }) => streams,
    cell: ({ streams }) => `${number(streams)}${streams === 10_000 ? ' or more' : ''}`,
    text: ({ streams }) => String(streams),
  },
  {
    id: 'actions',
    title: 'Actions',
    cell: (row) => (
      <button type="button" aria-label={`Positions of ${row.name}`} onClick={() => showPositions(row)}>
        Positions
      </button>
    ),
  },
]

const INBOX: readonly Column<InboxRow>[] = [
  { id: 'consumer', title: 'Consumer', by: ({ consumer }) => consumer, cell: ({ consumer }) => consumer },
  {
    id: 'key',
    title: 'Stream',
    by: ({ topic, key }) => `${topic}/${key}`,
    cell: ({ topic, key }) => <code>{`${topic}/${key}`}</code>,
    whole: ({ topic, key }) => `${topic}/${key}`,
  },
  { id: 'seq', title: 'Accepted up to', number: true, by: ({ seq }) => seq, cell: ({ seq }) => `#${seq}` },
  { id: 'event', title: 'Its id', by: ({ id }) => id ?? '', cell: ({ id }) => <code>{id ?? 'none yet'}</code> },
]

const KEPT: readonly Column<IdempotencyRow>[] = [
  { id: 'scope', title: 'Scope', by: ({ scope }) => scope, cell: ({ scope }) => scope, whole: ({ scope }) => scope },
  { id: 'key', title: 'Key', by: ({ key }) => key, cell: ({ key }) => <code>{key}</code>, whole: ({ key }) => key },
  { id: 'status', title: 'Status', number: true, by: ({ status }) => status, cell: ({ status }) => status },
  {
    id: 'size',
    title: 'Body',
    number: true,
    by: ({ bodyBytes }) => bodyBytes,
    cell: ({ bodyBytes }) => bytes(bodyBytes),
  },
  {
    id: 'at',
    title: 'Answered',
    by: ({ createdAt }) => Date.parse(createdAt),
    cell: ({ createdAt }) => clock(createdAt),
    text: ({ createdAt }) => createdAt,
  },
  {
    id: 'until',
    title: 'Kept until',
    by: ({ expiresAt }) => Date.parse(expiresAt),
    cell: ({ expiresAt }) => clock(expiresAt),
    text: ({ expiresAt }) => expiresAt,
  },
]

const RULES: readonly Column<RolloutRow>[] = [
  { id: 'key', title: 'Keys that begin with', by: (row) => row.prefix, cell: (row) => <code>{row.prefix}</code> },
  { id: 'mode', title: 'Mode', by: ({ mode }) => mode, cell: ({ mode }) => <span class="pill note">{mode}</span> },
  {
    id: 'would',
    title: 'Would have waited',
    number: true,
    by: ({ wouldWait }) => wouldWait,
    cell: ({ wouldWait }) => number(wouldWait),
  },
  {
    id: 'longest',
    title: 'The longest',
    number: true,
    by: ({ longestWaitMs }) => longestWaitMs,
    cell: ({ wouldWait, longestWaitMs }) => (wouldWait === 0 ? '' : duration(longestWaitMs)),
  },
  {
    id: 'duplicates',
    title: 'Duplicates',
    number: true,
    by: ({ duplicates }) => duplicates,
    cell: ({ duplicates }) => number(duplicates),
  },
  {
    id: 'at',
    title: 'Since',
    by: ({ changedAt }) => Date.parse(changedAt),
    cell: ({ changedAt }) => clock(changedAt),
    text: ({ changedAt }) => changedAt,
  },
  {
    id: 'reason',
    title: 'Reason',
    by: ({ reason }) => reason,
    cell: ({ reason }) => reason,
    whole: (row) => row.reason,
  },
]

/** What is kept: who did what, how far consumers are, which answers are remembered, which keys are locked. */
export function Records(): JSX.Element {
  return (
    <>
      <Search<AuditList, AuditRow>
        tab="records"
        name="audit"
        title="Audit"
        path="api/audit"
        fields={[
          { id: 'name', label: 'Part of the name' },
          { id: 'verb', label: 'What', example: 'skip' },
          { id: 'topic', label: 'Topic' },
          { id: 'key', label: 'Key' },
        ]}
        rowsOf={({ entries }) => entries}
        columns={AUDIT}
        keyOf={({ of, id }) => `${of} ${id}`}
        empty="This is the record of what operators do: who, from where, and why."
        about="What operators did, the newest first."
      />
      <Search<ConsumerList, ConsumerRow>
        tab="records"
        name="consumers"
        title="Consumers"
        path="api/consumers"
        fields={[]}
        rowsOf={({ consumers }) => consumers}
        columns={CONSUMERS}
        keyOf={({ name }) => name}
        empty="A consumer or a dispatcher is shown here when it has run."
        about="Who receives events, and how far behind. Retry and skip are with the streams that wait, in the tab Outbox."
      />
      <Search<InboxList, InboxRow>
        tab="records"
        name="inbox"
        title="Inbox positions"
        path="api/inbox"
        fields={[
          { id: 'consumer', label: 'Consumer' },
          { id: 'topic', label: 'Topic' },
          { id: 'key', label: 'Key' },
        ]}
        rowsOf={({ positions }) => positions}
        columns={INBOX}
        keyOf={({ consumer, topic, key }) => JSON.stringify([consumer, topic, key])}
        empty="A consumer that accepts events through the inbox has its positions here."
      />
      <Search<IdempotencyList, IdempotencyRow>
        tab="records"
        name="kept"
        title="Idempotency records"
        path="api/idempotency"
        fields={[
          { id: 'scope', label: 'Scope' },
          { id: 'prefix', label: 'Beginning of the key' },
        ]}
        rowsOf={({ records }) => records}
        columns={KEPT}
        keyOf={({ scope, key }) => JSON.stringify([scope, key])}
        empty="Answers to requests with an Idempotency-Key are kept here until they expire."
        about="Answers that are kept, without headers and bodies."
      />
      <Rollout />
    </>
  )
}

function Rollout(): JSX.Element {
  const [list, setList] = useState<RolloutList | undefined>(undefined)
  const [refusal, setRefusal] = useState('')
  useEffect(() => {
    get<RolloutList>('api/rollout').then(setList, (error: unknown) => setRefusal((error as Error).message))
  }, [])
  return (
    <section class="card" aria-labelledby="rollout">
      <div class="bar">
        <h2 id="rollout">Rollout rules</h2>
        {list !== undefined && (
          <span class="hint">What this console’s process has observed since {clock(list.since)}.</span>
        )}
      </div>
      {refusal !== '' && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
      {list === undefined && refusal === '' && <Skeleton lines={2} />}
      {list?.rules.length === 0 && <Empty title="There is no rule.">Every key is locked.</Empty>}
      {list !== undefined && list.rules.length > 0 && (
        <WindowedTable
          tab="records"
          name="rules"
          label="Rollout rules"
          columns={RULES}
          rows={list.rules}
          keyOf={({ prefix }) => prefix}
          first={{ column: 'key', down: false }}
          more={0}
        />
      )}
    </section>
  )
}
