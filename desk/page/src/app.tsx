import type { JSX } from 'preact'
import { theme, type Theme } from '../../../console/src/theme.ts'
import { Card } from './card.tsx'
import { connection, refusal, states, texts } from './live.ts'

export function App(): JSX.Element {
  return (
    <>
      <a class="skip" href="#main">
        Skip to the race
      </a>
      <Header />
      <main id="main" tabIndex={-1}>
        <section class="hero" aria-labelledby="hero">
          <h1 id="hero">The same work, twice. One side breaks.</h1>
          <p>
            Five systems, each as it is often written and with Lockstep. Both sides run at the same time, on{' '}
            <b>one PostgreSQL</b>, in <b>the same worker processes</b>. Hammer a card, then kill, freeze, cut or crash
            something. <span class="red-word">Red is a broken promise</span>, found by the checkers of{' '}
            <code>prove</code>. <a href="/measured">How this is measured</a>
          </p>
          <nav class="jump" aria-label="Cards">
            {texts.map(({ card, title }) => (
              <Jump key={card} card={card} title={title} />
            ))}
          </nav>
        </section>
        {texts.map((text) => (
          <Card key={text.card} text={text} />
        ))}
        <section class="more" aria-label="More">
          <a href="/console">
            <b>The console</b>
            <span>locks, leases and the outbox, live</span>
          </a>
          <a href="/docs">
            <b>Try the API</b>
            <span>the five systems as a service</span>
          </a>
          <a href="/requests">
            <b>Requests to copy</b>
            <span>one curl command for each system</span>
          </a>
          <a href="/check">
            <b>Check</b>
            <span>whether every invariant of the service holds now</span>
          </a>
          <a href="/portfolios">
            <b>Portfolios</b>
            <span>the published log of each</span>
          </a>
        </section>
      </main>
      <div class="told" role="status">
        {refusal.value !== '' && <p>{refusal.value}</p>}
      </div>
    </>
  )
}

function Jump({ card, title }: { card: keyof typeof states; title: string }): JSX.Element {
  const state = states[card].value
  const broken = state?.naive.violations ?? 0
  return (
    <a href={`#${card}`} class={state === undefined ? '' : state.phase === 'idle' ? 'seen' : 'on'}>
      {title}
      {broken > 0 && (
        <span class="count">
          {broken.toLocaleString('en')}
          <span class="unseen"> violations on the naive side</span>
        </span>
      )}
    </a>
  )
}

const CONNECTIONS = {
  connecting: ['note', 'Connecting'],
  live: ['good', 'Live'],
  lost: ['urgent', 'Disconnected'],
} as const

function Header(): JSX.Element {
  const [style, text] = CONNECTIONS[connection.value]
  return (
    <header class="top">
      <span class="brand">
        <img src="/favicon.svg" alt="" width="22" height="22" /> Lockstep
      </span>
      <span class="where">correct concurrency on the PostgreSQL you already have</span>
      <span class="signs">
        <span class={`pill ${style}`} role="status">
          {text}
        </span>
        <label>
          <span class="unseen">Theme</span>
          <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
            <option value="auto">Auto</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
      </span>
    </header>
  )
}
