import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Done, EventList, ReplayStream } from 'pg-lockstep/console'
import { Confirm } from '../dialog.tsx'
import { get } from '../live/request.ts'
import { act, session } from '../live/session.ts'
import { count } from '../wording.ts'

/** Sends a part of a stream again, to a sink of the service. The preview says what there is. */
export function ReplayDialog(properties: {
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly onClose: () => void
}): JSX.Element {
  const { topic, key, seq, onClose } = properties
  const sinks = session.value?.replayTo ?? []
  const [to, setTo] = useState(sinks[0] ?? '')
  const [toSeq, setToSeq] = useState(String(seq))
  const [preview, setPreview] = useState('')
  const look = (): void => {
    const query = new URLSearchParams({ topic, key, fromSeq: String(seq), toSeq, newestFirst: 'false' })
    get<EventList>(`api/events?${query}`).then(
      ({ events, next }) => {
        const [first, last] = [events[0], events.at(-1)]
        setPreview(
          first === undefined || last === undefined
            ? 'No event of these is retained.'
            : `${next === null ? '' : 'More than '}${count(events.length, 'event')}, from #${first.seq}${next === null ? ` to #${last.seq}` : ''}.`,
        )
      },
      (error: unknown) => setPreview((error as Error).message),
    )
  }
  return (
    <Confirm
      title={`Replay ${topic}/${key}`}
      verb="Replay"
      danger
      run={async (reason) => {
        const wish: ReplayStream = { to, topic, key, fromSeq: seq, toSeq: Number(toSeq), reason }
        return (await act<Done>('api/outbox/replay', wish))?.message
      }}
      onClose={onClose}
    >
      <p>
        Events of <code>{`${topic}/${key}`}</code> from #{seq} on are sent again. Dispatchers are not affected.
        Receivers must expect duplicates.
      </p>
      <label class="field">
        Up to number
        <input inputMode="numeric" required value={toSeq} onInput={(event) => setToSeq(event.currentTarget.value)} />
      </label>
      <label class="field">
        To
        <select value={to} onChange={(event) => setTo(event.currentTarget.value)}>
          {sinks.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      <p class="bar">
        <button type="button" onClick={look}>
          Preview
        </button>
        <span role="status">{preview}</span>
      </p>
    </Confirm>
  )
}
