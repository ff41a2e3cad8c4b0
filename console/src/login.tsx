import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { logIn } from './live/session.ts'
import { connect } from './live/stream.ts'

/** Asks for the token that the console was started with. */
export function Login(): JSX.Element {
  const [token, setToken] = useState('')
  const [name, setName] = useState('')
  const [busy, setBusy] = useState(false)
  const [refusal, setRefusal] = useState('')
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    setBusy(true)
    setRefusal('')
    try {
      await logIn(token, name)
      await connect()
    } catch (error) {
      setRefusal((error as Error).message)
      setBusy(false)
    }
  }
  return (
    <form class="card login" onSubmit={(event) => void submit(event)}>
      <h1>Log in</h1>
      <label class="field">
        Token
        <input
          type="password"
          autoComplete="current-password"
          required
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
        <span class="hint">
          Your own, or the one that the console was started with: <code>--token</code> or{' '}
          <code>LOCKSTEP_CONSOLE_TOKEN</code>, or the one that it printed.
        </span>
      </label>
      <label class="field">
        Your name
        <input
          autoComplete="username"
          maxLength={100}
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <span class="hint">Recorded with your changes, unless your login already identifies you.</span>
      </label>
      {refusal !== '' && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
      <footer>
        <button type="submit" class="primary" disabled={busy || token === ''}>
          Log in
        </button>
      </footer>
    </form>
  )
}
