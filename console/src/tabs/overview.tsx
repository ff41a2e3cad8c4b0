import type { JSX } from 'preact'
import type { OverviewSnapshot, Tab } from 'pg-lockstep/console'
import { concerns } from '../attention.ts'
import { Chart, type Line } from '../chart.tsx'
import { Skeleton } from '../empty.tsx'
import { historyTrouble, received } from '../live/stream.ts'
import { Epochs } from './epochs.tsx'
import { Waits } from './waits.tsx'
import { count, duration, number } from '../wording.ts'

const TRANSACTIONS: readonly Line[] = [
  { label: 'commits/s', of: (now) => now.commitsPerSecond, text: number, atLeast: 5 },
  { label: 'rollbacks/s', of: (now) => now.rollbacksPerSecond, text: number, atLeast: 5 },
]
const EVENTS: readonly Line[] = [
  { label: 'enqueued/s', of: (now) => now.enqueuedPerSecond, text: number, atLeast: 5 },
  { label: 'delivered/s', of: (now) => now.deliveredPerSecond, text: number, atLeast: 5 },
]
const WAITING: readonly Line[] = [
  { label: 'waiting for locks', of: (now) => now.lockWaiters, text: number, atLeast: 4 },
  { label: 'longest wait', of: (now) => now.longestLockWaitMs, text: duration, atLeast: 1000 },
]
const LAG: readonly Line[] = [
  { label: 'events to deliver', of: (now) => now.outboxLagEvents, text: number, atLeast: 10 },
  { label: 'the oldest waits for', of: (now) => now.outboxLagMs, text: duration, atLeast: 1000 },
]

export function Overview(): JSX.Element {
  const now = received.overview.value?.snapshot
  if (now === undefined) return <Skeleton lines={8} />
  return (
    <>
      <Attention now={now} />
      <Figures now={now} />
      <div class="charts">
        <Chart title="Transactions" lines={TRANSACTIONS} oneScale />
        <Chart title="Locks" lines={WAITING} />
        <Chart title="Events" lines={EVENTS} oneScale />
        <Chart title="Delivery" lines={LAG} />
      </div>
      {historyTrouble.value !== '' && (
        <p class="hint">The charts show what this console has seen itself. {historyTrouble.value}</p>
      )}
      <Waits />
      <Epochs />
    </>
  )
}

function Attention({ now }: { readonly now: OverviewSnapshot }): JSX.Element {
  const found = concerns(now)
  return (
    <section class="card attention" aria-labelledby="attention">
      <h2 id="attention">Attention</h2>
      {found.length === 0 ? (
        <p class="calm">Nothing needs attention.</p>
      ) : (
        <ul>
          {found.map(({ tab, urgent, text, todo, at }) => (
            <li key={text.replaceAll(/[\d.,]+/g, '')} class={urgent ? 'urgent' : 'note'}>
              {tab === 'overview' ? text : <a href={`#${tab}?${at}`}>{text}</a>} <span class="todo">{todo}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

function Figures({ now }: { readonly now: OverviewSnapshot }): JSX.Element {
  return (
    <dl class="figures">
      <Figure tab="locks" name="Locks held" value={number(now.locksHeld)}>
        {now.lockWaiters === 0 ? 'none waiting' : `${number(now.lockWaiters)} waiting`}
      </Figure>
      <Figure tab="leases" name="Leases held" value={number(now.leasesHeld)}>
        {now.leaseWaiters === 0 ? 'none waiting' : `${number(now.leaseWaiters)} waiting`}
      </Figure>
      <Figure tab="outbox" name="Events to deliver" value={number(now.outboxLagEvents)}>
        {now.outboxLagEvents === 0 ? 'all delivered' : `the oldest waits for ${duration(now.outboxLagMs)}`}
      </Figure>
      <Figure tab="outbox" name="Streams that wait" value={number(now.parkedStreams)}>
        {now.parkedStreams === 0 ? 'none is parked' : 'parked, blocked or paused'}
      </Figure>
      <Figure tab="outbox" name="Ownerless shards" value={number(now.shardsWithoutOwner)}>
        {now.shardsWithoutOwner === 0 ? 'all have an owner' : 'not delivered'}
      </Figure>
      <Figure name="Connections" value={number(now.connections)}>
        of {count(now.maxConnections, 'allowed', 'allowed')}
      </Figure>
    </dl>
  )
}

function Figure(properties: {
  readonly tab?: Tab
  readonly name: string
  readonly value: string
  readonly children: string | readonly string[]
}): JSX.Element {
  const { tab, name, value, children } = properties
  return (
    <div class="card">
      <dt>{tab === undefined ? name : <a href={`#${tab}`}>{name}</a>}</dt>
      <dd>
        <b>{value}</b> <span class="hint">{children}</span>
      </dd>
    </div>
  )
}
