import type { JSX } from 'preact'
import { now } from './live/clock.ts'
import { connect, connection, nextAttemptAt, refusal, trouble } from './live/stream.ts'

/** Says what is wrong with the connection, and that what is shown may have changed. */
export function Disconnected(): JSX.Element | null {
  if (connection.value === 'away') {
    return (
      <section class="banner" aria-label="Connection">
        <span role="alert">
          <strong>The database does not answer.</strong> {trouble.value} The page shows the last known state, and
          updates by itself when the database answers.
        </span>
      </section>
    )
  }
  if (connection.value !== 'reconnecting') return null
  return (
    <section class="banner" aria-label="Connection">
      <span role="alert">
        <strong>{refusal.value === '' ? 'The console’s server does not answer.' : refusal.value}</strong> The page shows
        the last known state.
      </span>{' '}
      <Countdown />{' '}
      <button type="button" onClick={() => void connect()}>
        Try now
      </button>
    </section>
  )
}

function Countdown(): JSX.Element {
  const at = nextAttemptAt.value
  return <>{at === undefined ? 'Trying …' : `Next attempt in ${Math.max(1, Math.ceil((at - now.value) / 1000))} s.`}</>
}
