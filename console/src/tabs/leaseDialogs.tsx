import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Done, LeaseHistory, LeaseRow, ReleaseLease } from 'pg-lockstep/console'
import { Confirm, Dialog } from '../dialog.tsx'
import { Skeleton } from '../empty.tsx'
import { get } from '../live/request.ts'
import { act } from '../live/session.ts'
import { clock, duration } from '../wording.ts'

const ENDINGS = { released: 'released', expired: 'expired', forced: 'taken away' } as const

/** Who had it before, and how that ended. */
export function History({
  leaseKey,
  onClose,
}: {
  readonly leaseKey: string
  readonly onClose: () => void
}): JSX.Element {
  const [history, setHistory] = useState<LeaseHistory | undefined>(undefined)
  const [refusal, setRefusal] = useState('')
  useEffect(() => {
    get<LeaseHistory>(`api/leases/history?key=${encodeURIComponent(leaseKey)}`).then(setHistory, (error: unknown) =>
      setRefusal((error as Error).message),
    )
  }, [leaseKey])
  return (
    <Dialog title={`History of ${leaseKey}`} onClose={onClose}>
      {refusal !== '' && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
      {history === undefined && refusal === '' && <Skeleton lines={3} />}
      {history?.entries.length === 0 && <p>It was not held before.</p>}
      {history !== undefined && history.entries.length > 0 && (
        <ol class="history">
          {history.entries.map((entry) => (
            <li key={`${entry.fence} ${entry.endedAt}`}>
              <div>
                <b>{entry.holder}</b> <span class={`pill ${entry.ending}`}>{ENDINGS[entry.ending]}</span>{' '}
                <span class="hint">fence {entry.fence}</span>
              </div>
              <div class="hint">
                {clock(entry.since)} to {clock(entry.endedAt)}, for{' '}
                {duration(Date.parse(entry.endedAt) - Date.parse(entry.since))}
              </div>
              {entry.by !== null && (
                <div>
                  by {entry.by}
                  {entry.reason !== null && <>: “{entry.reason}”</>}
                </div>
              )}
            </li>
          ))}
        </ol>
      )}
    </Dialog>
  )
}

/** Takes a lease away. It says in words from whom, and what that does not stop. */
export function Release(properties: {
  readonly leaseKey: string
  readonly lease: LeaseRow | undefined
  readonly onClose: () => void
  readonly onDone: () => void
}): JSX.Element {
  const { leaseKey, lease, onClose, onDone } = properties
  const [terminate, setTerminate] = useState(false)
  const holders = lease?.holders ?? []
  return (
    <Confirm
      title={`Release ${leaseKey}?`}
      verb={`Release ${leaseKey}`}
      danger
      run={async (reason) => {
        const wish: ReleaseLease = { key: leaseKey, reason, terminate }
        return (await act<Done>('api/leases/release', wish))?.message
      }}
      onClose={onClose}
      onDone={onDone}
    >
      {holders.length === 0 ? (
        <p>This lease is not held at the moment.</p>
      ) : (
        <p>
          <code>{leaseKey}</code> is taken away from{' '}
          {holders.map(({ holder, fence }, place) => (
            <span key={fence}>
              {place > 0 && ', '}
              <b>{holder}</b> (fence {fence})
            </span>
          ))}
          . {(lease?.waiters.length ?? 0) > 0 ? 'The first waiter gets it next.' : 'The next caller gets it.'}
        </p>
      )}
      <p>
        The holder learns of it at its next heartbeat. It can no longer commit through <code>lease.transaction()</code>;
        what it does outside the database is not stopped.
      </p>
      <label class="check">
        <input type="checkbox" checked={terminate} onChange={(event) => setTerminate(event.currentTarget.checked)} />
        End the holder’s open transaction instead of waiting for it
      </label>
    </Confirm>
  )
}

/** A lease that is free is not in the list, and has a history all the same. */
export function HistoryOf({
  onAsk,
  onClose,
}: {
  readonly onAsk: (key: string) => void
  readonly onClose: () => void
}): JSX.Element {
  const [key, setKey] = useState('')
  return (
    <Dialog title="History of a lease" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          onAsk(key.trim())
        }}
      >
        <label class="field">
          Key
          <input required value={key} onInput={(event) => setKey(event.currentTarget.value)} />
          <span class="hint">
            As it was written in the code, such as <code>Instance:7</code>.
          </span>
        </label>
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={key.trim() === ''}>
            Show
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
