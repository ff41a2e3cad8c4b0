import { signal } from '@preact/signals'
import type { OverviewSnapshot } from 'pg-lockstep/console'

/** How things stood at a moment; undefined while the server could not be asked. */
export interface Figure {
  /** Seconds, as charts have them. */
  readonly at: number
  readonly values: OverviewSnapshot | undefined
}

export const KEPT_SECONDS = 300
const QUIET_MS = 1900

/** The last five minutes. */
export const figures = signal<readonly Figure[]>([])

let last: Figure | undefined

export function keep(values: OverviewSnapshot | undefined, nowMs = Date.now()): void {
  const at = nowMs / 1000
  // A clock that was set back would draw backwards.
  const before = figures.peek().filter((each) => each.at > at - KEPT_SECONDS && each.at < at)
  last = { at, values }
  figures.value = [...before, last]
}

/** A server that says nothing says that nothing has changed. To be called every second. */
export function keepOn(live: boolean, nowMs = Date.now()): void {
  if (last === undefined) return
  if (!live) keep(undefined, nowMs)
  else if (nowMs - last.at * 1000 > QUIET_MS) keep(last.values, nowMs)
}
