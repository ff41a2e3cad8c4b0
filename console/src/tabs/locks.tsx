import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useCallback, useMemo } from 'preact/hooks'
import type { Claim, LockRow } from 'pg-lockstep/console'
import { addressState } from '../address.ts'
import { Dialog } from '../dialog.tsx'
import { Empty, Skeleton } from '../empty.tsx'
import { received } from '../live/stream.ts'
import { Lasting } from '../since.tsx'
import { Filter, matching } from '../table/filter.tsx'
import { type Column, WindowedTable } from '../table/windowed.tsx'
import { count, number } from '../wording.ts'
import { BlockingTree } from './blockingTree.tsx'
import { Guards } from './guards.tsx'

const filter = addressState('locks', 'q')
const opened = signal<string | undefined>(undefined)

const nameOf = ({ key, id }: LockRow): string => key ?? `lock ${id}`
const who = ({ pid, application }: Claim): string => `${application ?? 'unnamed'} (${pid})`
const longest = (claims: readonly Claim[]): number => Math.max(0, ...claims.map(({ forMs }) => forMs ?? 0))
const keyOf = ({ id }: LockRow): string => id

function textOf(row: LockRow): string {
  const claims = [...row.holders, ...row.waiters]
  return `${nameOf(row)} ${claims.map((claim) => `${who(claim)} ${claim.state ?? ''}`).join(' ')}`
}

function columnsAt(atMs: number): readonly Column<LockRow>[] {
  return [
    { id: 'key', title: 'Key', by: nameOf, cell: (row) => <code>{nameOf(row)}</code>, whole: nameOf },
    {
      id: 'holder',
      title: 'Held by',
      by: ({ holders }) => (holders[0] === undefined ? '' : who(holders[0])),
      cell: ({ holders }) => (
        <>
          {holders[0] === undefined ? 'none' : who(holders[0])}
          {holders.length > 1 && ` and ${holders.length - 1} more`}
          {holders[0]?.mode === 'shared' && <span class="hint"> shared</span>}
        </>
      ),
      whole: ({ holders }) => holders.map(who).join(', '),
    },
    {
      id: 'state',
      title: 'Session',
      by: ({ holders }) => holders[0]?.state ?? '',
      cell: ({ holders }) => holders[0]?.state ?? '',
    },
    {
      id: 'held',
      title: 'Held for',
      number: true,
      by: ({ holders }) => longest(holders),
      cell: ({ holders }) => (holders.length === 0 ? '' : <Lasting ms={longest(holders)} atMs={atMs} />),
    },
    {
      id: 'waiters',
      title: 'Waiting',
      number: true,
      by: ({ waiters, queued }) => waiters.length + queued,
      cell: ({ waiters, queued }) =>
        waiters.length + queued === 0 ? '0' : <span class="pill note">{number(waiters.length + queued)}</span>,
      whole: ({ waiters, queued }) =>
        `${count(waiters.length, 'session')} at the server, ${count(queued, 'caller')} in this console’s process`,
      text: ({ waiters, queued }) => String(waiters.length + queued),
    },
    {
      id: 'wait',
      title: 'Longest wait',
      number: true,
      by: ({ waiters }) => longest(waiters),
      cell: ({ waiters }) => (waiters.length === 0 ? '' : <Lasting ms={longest(waiters)} atMs={atMs} />),
    },
    {
      id: 'actions',
      title: 'Details',
      cell: (row) => (
        <button type="button" aria-label={`Details of ${nameOf(row)}`} onClick={() => (opened.value = row.id)}>
          Details
        </button>
      ),
    },
  ]
}

export function Locks(): JSX.Element {
  const now = received.locks.value
  const text = filter.value
  const rows = useMemo(() => matching(now?.snapshot.locks ?? [], text, textOf), [now, text])
  const columns = useMemo(() => columnsAt(now?.atMs ?? 0), [now])
  const close = useCallback(() => (opened.value = undefined), [])
  if (now === undefined) return <Skeleton />
  const { locks, tree, more } = now.snapshot
  if (locks.length === 0 && tree.length === 0) {
    return (
      <>
        <Empty title="No lock is held.">
          When a transaction is opened with <code>lock</code>, its keys are shown here until it ends, with who waits for
          them.
        </Empty>
        <Guards />
      </>
    )
  }
  const shown = locks.find(({ id }) => id === opened.value)
  return (
    <>
      <BlockingTree tree={tree} atMs={now.atMs} />
      <section class="card" aria-labelledby="locks">
        <div class="bar">
          <h2 id="locks">Locks</h2>
          <Filter text={filter} label="Filter by key, session or state" shown={rows.length} all={locks.length + more} />
        </div>
        {rows.length === 0 ? (
          <Empty title="No lock matches.">Remove a word from the filter.</Empty>
        ) : (
          <WindowedTable
            tab="locks"
            name="locks"
            label="Locks"
            columns={columns}
            rows={rows}
            keyOf={keyOf}
            first={{ column: 'waiters', down: true }}
            more={more}
          />
        )}
      </section>
      <Guards />
      {opened.value !== undefined && (
        <Dialog title={shown === undefined ? 'This lock has ended' : nameOf(shown)} onClose={close}>
          {shown === undefined ? (
            <p>It is no longer held, and no session waits for it.</p>
          ) : (
            <>
              <Claims title={count(shown.holders.length, 'holder')} claims={shown.holders} verb="for" atMs={now.atMs} />
              <Claims
                title={`${count(shown.waiters.length, 'waiter')}, in order of arrival`}
                claims={shown.waiters}
                verb="waits for"
                atMs={now.atMs}
              />
              {shown.queued > 0 && (
                <p>
                  {count(shown.queued, 'caller')} more {shown.queued === 1 ? 'waits' : 'wait'} in the memory of the
                  process that serves this console.
                </p>
              )}
            </>
          )}
        </Dialog>
      )}
    </>
  )
}

const CLAIMS_SHOWN = 50

function Claims(properties: {
  readonly title: string
  readonly claims: readonly Claim[]
  readonly verb: string
  readonly atMs: number
}): JSX.Element | null {
  const { title, claims, verb, atMs } = properties
  if (claims.length === 0) return null
  return (
    <>
      <h3>{title}</h3>
      <ul class="plain">
        {claims.slice(0, CLAIMS_SHOWN).map((claim, place) => (
          <li key={`${claim.pid} ${claim.mode} ${place}`}>
            {who(claim)} · {claim.mode} · {claim.state ?? 'state unknown'} · {verb}{' '}
            <Lasting ms={claim.forMs} atMs={atMs} />
          </li>
        ))}
        {claims.length > CLAIMS_SHOWN && <li>and {number(claims.length - CLAIMS_SHOWN)} more</li>}
      </ul>
    </>
  )
}
