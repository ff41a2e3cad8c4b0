import type { ComponentChildren, JSX } from 'preact'
import { useId, useState } from 'preact/hooks'
import type { Done, ParkedRow, RemoveDispatcher, SkipEvent, StreamAction } from 'pg-lockstep/console'
import { Confirm } from '../dialog.tsx'
import { act } from '../live/session.ts'
import { clock, count } from '../wording.ts'

export type Verb = 'retry' | 'skip' | 'pause' | 'resume'

interface Wording {
  readonly verb: string
  readonly danger?: true
  readonly text: (row: ParkedRow) => ComponentChildren
}

const WORDINGS: Readonly<Record<Verb, Wording>> = {
  retry: {
    verb: 'Retry',
    text: ({ head, events }) => (
      <p>
        Event #{head} is tried again now, and after it the {count(Math.max(0, events - 1), 'other')} in their order. If
        the sink refuses it again, the stream waits again.
      </p>
    ),
  },
  skip: {
    verb: 'Skip',
    danger: true,
    text: ({ head }) => (
      <p>
        Event #{head} is given up. A tombstone replaces it, so that consumers see no gap, and the stream continues. This
        cannot be undone.
      </p>
    ),
  },
  pause: {
    verb: 'Pause',
    text: () => <Pausing />,
  },
  resume: {
    verb: 'Resume',
    text: ({ events }) => <p>The stream continues where it was paused. {count(events, 'event')} wait.</p>,
  },
}

function Pausing(): JSX.Element {
  return (
    <p>From the next batch on nothing of this stream is delivered. Its events are kept in order until it is resumed.</p>
  )
}

/** Asks before it does something with a stream that waits. */
export function StreamActionDialog(properties: {
  readonly verb: Verb
  readonly row: ParkedRow
  readonly onClose: () => void
}): JSX.Element {
  const { verb, onClose } = properties
  // As it was when the button was pressed: what is confirmed is what was read.
  const [row] = useState(properties.row)
  const { dispatcher, topic, key, head, headId } = row
  const wording = WORDINGS[verb]
  const name = `${topic}/${key}`
  return (
    <Confirm
      title={`${wording.verb} ${name}?`}
      verb={`${wording.verb} ${name}`}
      danger={wording.danger ?? false}
      run={async (reason) => {
        const stream: StreamAction = { dispatcher, topic, key, reason }
        const wish: StreamAction | SkipEvent = verb === 'skip' ? { ...stream, seq: head ?? 0, headId } : stream
        return (await act<Done>(`api/outbox/${verb}`, wish))?.message
      }}
      onClose={onClose}
    >
      <p>
        <code>{name}</code> of the dispatcher <b>{dispatcher}</b>, {row.state} since {clock(row.since)}
        {row.reason !== null && <>: “{row.reason}”</>}
      </p>
      {wording.text(row)}
    </Confirm>
  )
}

/** Pauses a stream that does not wait yet. */
export function PauseAny(properties: {
  readonly dispatchers: readonly string[]
  readonly onClose: () => void
}): JSX.Element {
  const { dispatchers, onClose } = properties
  const [wish, setWish] = useState({ dispatcher: dispatchers[0] ?? 'default', topic: '', key: '' })
  const list = useId()
  const field = (name: 'topic' | 'key', label: string, example: string): JSX.Element => (
    <label class="field">
      {label}
      <input
        required
        value={wish[name]}
        placeholder={example}
        onInput={(event) => setWish({ ...wish, [name]: event.currentTarget.value })}
      />
    </label>
  )
  return (
    <Confirm
      title="Pause a stream"
      verb="Pause"
      run={async (reason) => (await act<Done>('api/outbox/pause', { ...wish, reason } satisfies StreamAction))?.message}
      onClose={onClose}
    >
      <Pausing />
      <label class="field">
        Dispatcher
        <input
          required
          list={list}
          value={wish.dispatcher}
          onInput={(event) => setWish({ ...wish, dispatcher: event.currentTarget.value })}
        />
        <datalist id={list}>
          {dispatchers.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      </label>
      {field('topic', 'Topic', 'trades')}
      {field('key', 'Key', 'portfolio-7')}
    </Confirm>
  )
}

/** Forgets a dispatcher that no process runs any more. */
export function RemoveDialog({ name, onClose }: { readonly name: string; readonly onClose: () => void }): JSX.Element {
  return (
    <Confirm
      title={`Remove the dispatcher ${name}?`}
      verb={`Remove ${name}`}
      danger
      run={async (reason) =>
        (await act<Done>('api/outbox/remove', { dispatcher: name, reason } satisfies RemoveDispatcher))?.message
      }
      onClose={onClose}
    >
      <p>
        Its cursors and its parked events are removed. Events are no longer retained for it. A new dispatcher with the
        same name begins with the oldest event. A dispatcher that runs is not removed.
      </p>
    </Confirm>
  )
}
