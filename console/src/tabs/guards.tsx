import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { GuardList, GuardRow } from 'pg-lockstep/console'
import { get } from '../live/request.ts'
import { clock, number } from '../wording.ts'

const EVERY_MS = 5000

/** Tables that can be written only under a lock, and who wrote without it. */
export function Guards(): JSX.Element {
  const [list, setList] = useState<GuardList | undefined>(undefined)
  useEffect(() => {
    const look = (): void => void get<GuardList>('api/guards').then(setList, () => setList(undefined))
    look()
    const timer = setInterval(look, EVERY_MS)
    return () => clearInterval(timer)
  }, [])
  if (list === undefined || list.guards.length === 0) return <></>
  return (
    <section class="card" aria-labelledby="guards">
      <h2 id="guards">Guards</h2>
      <ul class="history">
        {list.guards.map((guard) => (
          <li key={`${guard.table} ${guard.key}`}>
            <Guard guard={guard} />
          </li>
        ))}
      </ul>
    </section>
  )
}

function Guard({ guard }: { readonly guard: GuardRow }): JSX.Element {
  return (
    <>
      <div>
        <b>{guard.table}</b> <code>{guard.key}</code> {guard.held === 'lease' && 'lease '}
        <span class="pill note">{guard.mode}</span>{' '}
        {guard.state !== 'active' && <span class="pill urgent">{guard.state}</span>}
      </div>
      <div class="hint">
        since {clock(guard.addedAt)}: {number(guard.unlocked)} rows written without the lock, {number(guard.listed)}{' '}
        with a lock taken by plain SQL, {number(guard.refused)} statements refused
      </div>
      {guard.samples.length > 0 && (
        <ul class="plain">
          {guard.samples.map((sample, place) => (
            <li key={`${sample.at} ${place}`}>
              {clock(sample.at)} · {sample.application === '' ? 'unnamed' : sample.application} as {sample.role} ·{' '}
              {sample.operation} <code>{sample.key ?? 'all keys'}</code> · <code>{sample.query}</code>
            </li>
          ))}
        </ul>
      )}
    </>
  )
}
