import { useComputed } from '@preact/signals'
import type { ComponentType, JSX } from 'preact'
import { useEffect } from 'preact/hooks'
import { concerns } from './attention.ts'
import { told } from './dialog.tsx'
import { Header } from './header.tsx'
import { needsToken } from './live/session.ts'
import { Disconnected } from './disconnected.tsx'
import { received } from './live/stream.ts'
import { Login } from './login.tsx'
import { type PageTab, tab, TABS } from './tab.ts'
import { Events } from './tabs/events.tsx'
import { Leases } from './tabs/leases.tsx'
import { Locks } from './tabs/locks.tsx'
import { Outbox } from './tabs/outbox.tsx'
import { Overview } from './tabs/overview.tsx'
import { Records } from './tabs/records.tsx'

const CONTENT: Readonly<Record<PageTab, ComponentType>> = {
  overview: Overview,
  locks: Locks,
  leases: Leases,
  outbox: Outbox,
  events: Events,
  records: Records,
}

export function App(): JSX.Element {
  const Content = CONTENT[tab.value]
  const title = TABS.find(({ id }) => id === tab.value)?.title ?? ''
  useEffect(() => {
    document.title = `${title} · Lockstep console`
  }, [title])
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <Header />
      {needsToken.value ? (
        <main id="main" tabIndex={-1}>
          <Login />
        </main>
      ) : (
        <>
          <Navigation />
          <Disconnected />
          <main id="main" tabIndex={-1}>
            <h1 class="unseen">{title}</h1>
            <Content />
          </main>
        </>
      )}
      <div class="told" role="status">
        {told.value !== '' && <p>{told.value}</p>}
      </div>
    </>
  )
}

/** The address stays: it names the tab. */
function skip(event: Event): void {
  event.preventDefault()
  document.getElementById('main')?.focus()
}

function Navigation(): JSX.Element {
  const marks = useComputed(() => {
    const snapshot = received.overview.value?.snapshot
    const found = snapshot === undefined ? [] : concerns(snapshot)
    return Object.fromEntries(
      TABS.map(({ id }) => [
        id,
        found.some((each) => each.tab === id && id !== 'overview')
          ? found.some((each) => each.tab === id && each.urgent)
            ? 'urgent'
            : 'note'
          : '',
      ]),
    )
  })
  return (
    <nav aria-label="Tabs">
      {TABS.map(({ id, title }) => (
        <a key={id} href={`#${id}`} aria-current={tab.value === id ? 'page' : undefined}>
          {title}
          {marks.value[id] !== '' && (
            <span class={`mark ${marks.value[id]}`}>
              <span class="unseen">, needs attention</span>
            </span>
          )}
        </a>
      ))}
    </nav>
  )
}
