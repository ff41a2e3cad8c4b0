import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { Payload } from 'pg-lockstep/console'
import { Dialog } from '../dialog.tsx'
import { Skeleton } from '../empty.tsx'
import { get } from '../live/request.ts'
import { clock } from '../wording.ts'

/** What an event carries: only for who asks, and only for operators. */
export function PayloadDialog(properties: {
  readonly name: string
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly onClose: () => void
}): JSX.Element {
  const { name, onClose } = properties
  const [asked] = useState(() => `${properties.path}?${new URLSearchParams(properties.query)}`)
  const [payload, setPayload] = useState<Payload | undefined>(undefined)
  const [refusal, setRefusal] = useState('')
  useEffect(() => {
    get<Payload>(asked).then(setPayload, (error: unknown) => setRefusal((error as Error).message))
  }, [asked])
  return (
    <Dialog title={`Payload of ${name}`} onClose={onClose}>
      {refusal !== '' && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
      {payload === undefined && refusal === '' && <Skeleton lines={3} />}
      {payload !== undefined && (
        <>
          <p class="hint">
            Event #{payload.seq}, enqueued {clock(payload.enqueuedAt)}, id {payload.id}
          </p>
          <h3>Headers</h3>
          <pre tabIndex={0}>{JSON.stringify(payload.headers, undefined, 2)}</pre>
          <h3>Payload</h3>
          <pre tabIndex={0}>{pretty(payload.payload)}</pre>
        </>
      )}
    </Dialog>
  )
}

/** JSON with its lines; what is none stays as it is. */
function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2)
  } catch {
    return text
  }
}
