import { signal } from '@preact/signals'
import type { HistorySample } from 'pg-lockstep/console'

/** How things stood at a moment; undefined while the server could not be asked. */
export interface Figure {
  /** Seconds, as charts have them. */
  readonly at: number
  readonly values: HistorySample | undefined
}

export const KEPT_SECONDS = 3600
/** Older than this, one of ten seconds is kept. */
const FINE_SECONDS = 300
const COARSE_SECONDS = 10
const QUIET_MS = 1900

/** The last hour. */
export const figures = signal<readonly Figure[]>([])

let last: Figure | undefined

export function keep(values: HistorySample | undefined, nowMs = Date.now()): void {
  const at = nowMs / 1000
  const slotOf = (figure: Figure): number => Math.floor(figure.at / COARSE_SECONDS)
  // A clock that was set back would draw backwards.
  const before = figures
    .peek()
    .filter(
      (each, place, all) =>
        each.at > at - KEPT_SECONDS &&
        each.at < at &&
        (each.at > at - FINE_SECONDS || place === 0 || slotOf(all[place - 1] as Figure) !== slotOf(each)),
    )
  last = { at, values }
  figures.value = [...before, last]
}

/** What the server remembers, put before what was seen here. `aheadMs`: how far its clock is ahead of ours. */
export function remember(samples: readonly HistorySample[], aheadMs: number): void {
  const seen = figures.peek()
  const until = seen[0]?.at ?? Infinity
  const older = samples.map((values) => ({ at: (Date.parse(values.at) - aheadMs) / 1000, values }))
  figures.value = [...older.filter(({ at }) => at < until), ...seen]
}

/** A server that says nothing says that nothing has changed. To be called every second. */
export function keepOn(live: boolean, nowMs = Date.now()): void {
  if (last === undefined) return
  if (!live) keep(undefined, nowMs)
  else if (nowMs - last.at * 1000 > QUIET_MS) keep(last.values, nowMs)
}
