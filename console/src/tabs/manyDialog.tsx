import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Done, ManyPreview, OnMany } from 'pg-lockstep/console'
import { Confirm, Dialog } from '../dialog.tsx'
import { get } from '../live/request.ts'
import { act } from '../live/session.ts'
import { fieldOf, searchAgain } from '../search.tsx'
import { count, number } from '../wording.ts'

type Verb = 'redrive' | 'skip-many'

/** Of many, the first say enough. */
const SHOWN = 10

const TEXTS = {
  parked: { title: 'Retry or skip many streams', one: 'stream that waits', many: 'streams that wait' },
  dead: { title: 'Redrive dead letters', one: 'dead letter', many: 'dead letters' },
} as const

/** First a preview, then the act: what is done is what was seen. */
export function ManyDialog(properties: {
  readonly what: 'parked' | 'dead'
  /** Whose search it begins with. */
  readonly tab?: 'events'
  readonly onClose: () => void
}): JSX.Element {
  const { what, tab, onClose } = properties
  const [wish, setWish] = useState(() => {
    const found = (id: string): string => (tab === undefined ? '' : fieldOf(tab, 'dead', id).peek())
    return {
      dispatcher: found('dispatcher') || 'default',
      topic: found('topic'),
      key: found('key'),
      error: found('error'),
    }
  })
  const [preview, setPreview] = useState<ManyPreview | undefined>(undefined)
  const [verb, setVerb] = useState<Verb>('redrive')
  const [refusal, setRefusal] = useState('')
  const { title, one, many } = TEXTS[what]
  const usable = preview?.found.filter((row) => row.usable) ?? []
  if (preview !== undefined && usable.length > 0) {
    return (
      <Confirm
        title={title}
        verb={`${verb === 'redrive' ? (what === 'dead' ? 'Redrive' : 'Retry') : 'Skip'} ${number(usable.length)}`}
        danger={verb === 'skip-many'}
        run={async (reason) => {
          const ids = usable.map(({ id }) => id)
          const given: OnMany = { what, dispatcher: wish.dispatcher, ids, reason }
          const done = await act<Done>(`api/outbox/${verb}`, given)
          searchAgain.value++
          return done?.message
        }}
        onClose={onClose}
      >
        <p>
          {count(usable.length, one, many)} of the dispatcher <b>{wish.dispatcher}</b>
          {preview.more && ', and there are more: repeat it afterwards'}.
          {preview.found.length > usable.length &&
            ` ${count(preview.found.length - usable.length, 'other')} cannot be redriven.`}
        </p>
        <ul class="plain">
          {usable.slice(0, SHOWN).map((row) => (
            <li key={row.id}>
              <code>
                {row.topic}/{row.key} #{row.seq}
              </code>
              {row.reason !== null && <span class="hint"> {row.reason}</span>}
            </li>
          ))}
          {usable.length > SHOWN && <li class="hint">and {number(usable.length - SHOWN)} more</li>}
        </ul>
        {what === 'parked' ? (
          <label class="field">
            What to do
            <select value={verb} onChange={(event) => setVerb(event.currentTarget.value as Verb)}>
              <option value="redrive">Try each stream again now</option>
              <option value="skip-many">Give up the first event of each: a tombstone replaces it</option>
            </select>
          </label>
        ) : (
          <p>Each is enqueued again at the end of its stream, with a new number: every dispatcher gets it.</p>
        )}
      </Confirm>
    )
  }
  const field = (id: keyof typeof wish, label: string, required = false): JSX.Element => (
    <label class="field">
      {label}
      <input
        required={required}
        value={wish[id]}
        onInput={(event) => setWish({ ...wish, [id]: event.currentTarget.value })}
      />
    </label>
  )
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          setRefusal('')
          const query = new URLSearchParams({ what, ...wish })
          get<ManyPreview>(`api/outbox/many?${query}`).then(setPreview, (error: unknown) =>
            setRefusal((error as Error).message),
          )
        }}
      >
        {field('dispatcher', 'Dispatcher', true)}
        {field('topic', 'Topic')}
        {field('key', 'Key')}
        {field('error', 'Part of the reason')}
        {preview !== undefined && <p role="status">Nothing fits.</p>}
        {refusal !== '' && (
          <p class="refusal" role="alert">
            {refusal}
          </p>
        )}
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Preview
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
