import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { WaitHistory } from 'pg-lockstep/console'
import { get } from '../live/request.ts'
import { type Column, WindowedTable } from '../table/windowed.tsx'
import { clock, duration, number } from '../wording.ts'

type Row = WaitHistory['waits'][number]

const EVERY_MS = 10_000

const COLUMNS: readonly Column<Row>[] = [
  { id: 'key', title: 'Key', by: ({ key }) => key, cell: ({ key }) => <code>{key}</code>, whole: ({ key }) => key },
  {
    id: 'longest',
    title: 'Longest wait',
    number: true,
    by: ({ longestWaitMs }) => longestWaitMs,
    cell: ({ longestWaitMs }) => duration(longestWaitMs),
  },
  {
    id: 'most',
    title: 'Most waiters',
    number: true,
    by: ({ mostWaiters }) => mostWaiters,
    cell: ({ mostWaiters }) => number(mostWaiters),
  },
  { id: 'seen', title: 'Looks', number: true, by: ({ seen }) => seen, cell: ({ seen }) => number(seen) },
  {
    id: 'last',
    title: 'Last seen',
    by: ({ lastAt }) => Date.parse(lastAt),
    cell: ({ lastAt }) => clock(lastAt),
    text: ({ lastAt }) => lastAt,
  },
]

/** The longest waits and the most contended keys of the last hour. */
export function Waits(): JSX.Element | null {
  const [history, setHistory] = useState<WaitHistory | undefined>(undefined)
  useEffect(() => {
    const look = (): void => void get<WaitHistory>('api/waits').then(setHistory, () => undefined)
    look()
    const timer = setInterval(look, EVERY_MS)
    return () => clearInterval(timer)
  }, [])
  if (history === undefined || history.waits.length === 0) return null
  return (
    <section class="card" aria-labelledby="waits">
      <div class="bar">
        <h2 id="waits">Waits of the last hour</h2>
        <span class="hint">Keys for which sessions waited, when the console looked.</span>
      </div>
      <WindowedTable
        tab="overview"
        name="waits"
        label="Waits of the last hour"
        columns={COLUMNS}
        rows={history.waits}
        keyOf={({ key }) => key}
        first={{ column: 'longest', down: true }}
        more={0}
      />
    </section>
  )
}
