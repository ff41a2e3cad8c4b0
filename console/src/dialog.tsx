import { signal } from '@preact/signals'
import type { ComponentChildren, JSX } from 'preact'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { RequestRefusedError } from './live/request.ts'
import { READ_ONLY, session } from './live/session.ts'

/** The last thing that was done, shown for a while. */
export const told = signal('')
let forgetting: ReturnType<typeof setTimeout> | undefined
const TOLD_MS = 10_000

export function say(text: string): void {
  told.value = text
  clearTimeout(forgetting)
  forgetting = setTimeout(() => (told.value = ''), TOLD_MS)
}

/** A dialog over the page: the browser keeps the focus inside, Esc closes it, and the focus goes back to where it was. */
export function Dialog(properties: {
  readonly title: string
  readonly onClose: () => void
  readonly children: ComponentChildren
}): JSX.Element {
  const { title, onClose, children } = properties
  const id = useId()
  const element = useRef<HTMLDialogElement>(null)
  const open = useRef(true)
  useLayoutEffect(() => {
    const dialog = element.current as HTMLDialogElement
    const before = document.activeElement as HTMLElement | null
    dialog.showModal()
    return () => {
      // Its own end is reported later, when another dialog may have followed.
      open.current = false
      dialog.close()
      // What opened it may be gone, if it was about a row that has ended.
      if (before === null || !before.isConnected) document.getElementById('main')?.focus()
    }
  }, [])
  return (
    <dialog ref={element} aria-labelledby={id} onClose={() => open.current && onClose()}>
      <header>
        <h2 id={id}>{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  )
}

/** Asks before it does something: in words, and for a reason, which is written into the audit. */
export function Confirm(properties: {
  readonly title: string
  readonly verb: string
  readonly danger?: boolean
  readonly run: (reason: string) => Promise<string | undefined>
  readonly onClose: () => void
  /** What follows when it is done. Default: it is closed. */
  readonly onDone?: () => void
  readonly children: ComponentChildren
}): JSX.Element {
  const { title, verb, danger = false, run, onClose, onDone = onClose, children } = properties
  const [reason, setReason] = useState('')
  const [busy, setBusy] = useState(false)
  const [refusal, setRefusal] = useState<{ readonly title: string; readonly detail: string } | undefined>(undefined)
  const id = useId()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (busy) return
    setBusy(true)
    setRefusal(undefined)
    try {
      const message = await run(reason.trim())
      say(message ?? 'Done.')
      onDone()
    } catch (error) {
      setRefusal(error instanceof RequestRefusedError ? error.problem : { title: 'It failed', detail: String(error) })
      setBusy(false)
    }
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {children}
        <label class="field" for={id}>
          Reason
          <textarea
            id={id}
            rows={2}
            maxLength={1000}
            required
            value={reason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
          <span class="hint">It is recorded with the time and your name.</span>
        </label>
        {refusal !== undefined && (
          <p class="refusal" role="alert">
            <strong>{refusal.title}.</strong> {refusal.detail}
          </p>
        )}
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={danger ? 'danger' : 'primary'} disabled={busy || reason.trim() === ''}>
            {busy ? 'Working …' : verb}
          </button>
        </footer>
      </form>
    </Dialog>
  )
}

/** A button for operators. Others can reach it and read why it does nothing. */
export function OperatorButton(properties: {
  readonly children: ComponentChildren
  readonly label: string
  readonly onClick: () => void
}): JSX.Element {
  const allowed = session.value?.operator === true
  const { children, label, onClick } = properties
  return (
    <button
      type="button"
      aria-label={label}
      aria-disabled={!allowed}
      aria-describedby={allowed ? undefined : 'read-only'}
      title={allowed ? undefined : READ_ONLY}
      onClick={() => (allowed ? onClick() : say(READ_ONLY))}
    >
      {children}
    </button>
  )
}

/** Says in words what the disabled buttons mean; they point here. */
export function ReadOnlyNote(): JSX.Element | null {
  if (session.value === undefined || session.value.operator) return null
  return (
    <p class="hint" id="read-only">
      {READ_ONLY}
    </p>
  )
}
