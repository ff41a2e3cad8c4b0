import type { JSX } from 'preact'
import { say } from './dialog.tsx'
import { logOut, READ_ONLY, session } from './live/session.ts'
import { connection, type Connection } from './live/stream.ts'
import { theme, type Theme } from './theme.ts'

const STATES: Readonly<Record<Connection, readonly [style: string, text: string]>> = {
  connecting: ['note', 'Connecting'],
  live: ['good', 'Live'],
  reconnecting: ['urgent', 'Reconnecting'],
  away: ['urgent', 'Database down'],
  resting: ['note', 'Resting'],
}

export function Header(): JSX.Element {
  const known = session.value
  const [style, text] = STATES[connection.value]
  return (
    <header class="top">
      <span class="brand">
        <img src="./icon.svg" alt="" width="22" height="22" /> Lockstep
      </span>
      {known !== undefined && (
        <span class="where" title={`${known.server}, pg-lockstep ${known.version}`}>
          <b>{known.database}</b> · schema {known.schema} · {known.server} · v{known.version}
        </span>
      )}
      <span class="signs">
        {known !== undefined && (
          <span class={`pill ${style}`} role="status">
            <span class="unseen">Connection: </span>
            {text}
          </span>
        )}
        {known !== undefined && (
          <span
            class={`pill ${known.operator ? 'operator' : ''}`}
            title={known.operator ? 'You can change things.' : READ_ONLY}
          >
            {known.name === null ? '' : `${known.name}: `}
            {known.operator ? 'Operator' : 'Read-only'}
          </span>
        )}
        <label>
          <span class="unseen">Theme</span>
          <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
            <option value="auto">Auto</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        {known?.token === true && (
          <button type="button" onClick={() => void leave()}>
            Log out
          </button>
        )}
      </span>
    </header>
  )
}

async function leave(): Promise<void> {
  try {
    await logOut()
    // A page that has forgotten everything is the simplest proof that it has.
    location.reload()
  } catch (error) {
    say((error as Error).message)
  }
}
