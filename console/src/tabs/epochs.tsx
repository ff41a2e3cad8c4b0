import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { EpochEntry, EpochHistory } from 'pg-lockstep/console'
import { get } from '../live/request.ts'
import { clock, duration } from '../wording.ts'

const KINDS: Readonly<Record<EpochEntry['kind'], string>> = {
  first: 'the schema was made',
  restart: 'restart after a crash',
  timeline: 'promoted or restored',
  copy: 'another server or database',
}

const EVERY_MS = 5000

/** Which server it was, since when, and from when on commits of the one before can be missing. */
export function Epochs(): JSX.Element {
  const [history, setHistory] = useState<EpochHistory | undefined>(undefined)
  useEffect(() => {
    // While the primary is replaced, the server knows nothing: what it said last stays.
    const look = (): void => void get<EpochHistory>('api/epochs').then(setHistory, () => undefined)
    look()
    const timer = setInterval(look, EVERY_MS)
    return () => clearInterval(timer)
  }, [])
  if (history === undefined || history.entries.length === 0) return <></>
  return (
    <section class="card" aria-labelledby="epochs">
      <h2 id="epochs">Server epochs</h2>
      {history.grantsInMs !== null && (
        <p role="status">
          New leases are granted in {duration(history.grantsInMs)}: the row of a holder can be missing.
        </p>
      )}
      <ol class="history">
        {history.entries.map((entry) => (
          <li key={entry.history}>
            <div>
              <b>{KINDS[entry.kind]}</b>{' '}
              <span class="hint">
                timeline {entry.timeline}, generation {entry.generation}, {entry.address}
              </span>
            </div>
            <div class="hint">
              since {clock(entry.beganAt)}
              {entry.lastKnownAt !== null &&
                `; commits after ${clock(entry.lastKnownAt)} of the old server can be missing`}
            </div>
          </li>
        ))}
      </ol>
    </section>
  )
}
