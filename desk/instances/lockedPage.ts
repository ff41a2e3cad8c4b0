import type { LeaseInfo } from 'pg-lockstep'
import { page, text } from '../http/page.ts'

/** An instance that is worked on just now. */
export interface Locked {
  readonly id: string
  readonly holder: string
  /** The X-Request-Id of the request that works on it, and what it does. */
  readonly request: string | null
  readonly action: string | null
  /** The task that it is at. */
  readonly task: string | null
  readonly since: string
  readonly leftMs: number
  readonly fence: string
}

export const PREFIX = 'Instance:'

/** `tasks`: where each instance is. Only the holder moves it, so this is what it works on. */
export function lockedOf(leases: readonly LeaseInfo[], tasks: ReadonlyMap<string, string>): Locked[] {
  return leases.flatMap(({ key, holders }) =>
    holders.map(({ holder, since, leftMs, fence, metadata }) => {
      const id = key.slice(PREFIX.length)
      return {
        id,
        holder,
        request: textIn(metadata?.['request']),
        action: textIn(metadata?.['action']),
        task: tasks.get(id) ?? null,
        since: since.toISOString(),
        leftMs,
        fence: String(fence),
      }
    }),
  )
}

function textIn(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

const TITLES = ['instance', 'worked on by', 'request', 'action', 'task', 'since', 'ends, unless renewed, in', 'fence']

/** The same for people. */
export function lockedPage(locked: readonly Locked[]): string {
  const rows = locked.map(({ id, holder, request, action, task, since, leftMs, fence }) => {
    const link = `<a href="/instances/${encodeURIComponent(id)}">${text(id)}</a>`
    const cells = [text(holder), text(request ?? ''), text(action ?? ''), text(task ?? '')]
    const more = [`<time>${text(since)}</time>`, `${leftMs} ms`, text(fence)]
    return `<tr>${[link, ...cells, ...more].map((cell) => `<td>${cell}</td>`).join('')}</tr>`
  })
  const table =
    rows.length === 0
      ? '<p>None. A step takes 300 ms at most: reload while one is in progress.</p>'
      : `<table><thead><tr>${TITLES.map((title) => `<th>${title}</th>`).join('')}</tr></thead>
         <tbody>${rows.join('')}</tbody></table>`
  return page(
    'Locked instances',
    `<h1>Instances that are worked on just now</h1>${table}<p><a href="/">The desk</a></p>`,
  )
}
