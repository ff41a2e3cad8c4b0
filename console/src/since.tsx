import type { JSX } from 'preact'
import { ahead, now } from './live/clock.ts'
import { clock, duration, seconds } from './wording.ts'

/** Counts up by itself, so that a row is not drawn again for the sake of its clock. `ms` was true at `atMs`, in our time. */
export function Lasting({ ms, atMs }: { readonly ms: number | null; readonly atMs: number }): JSX.Element {
  if (ms === null) return <>unknown</>
  return <>{duration(ms + Math.max(0, now.value - atMs))}</>
}

/** How long ago, by the server's clock. */
export function Since({ at }: { readonly at: string }): JSX.Element {
  return (
    <time dateTime={at} title={clock(at)}>
      {seconds(now.value + ahead.value - Date.parse(at))}
    </time>
  )
}

/** How long until then, by the server's clock. */
export function Until({ at, past }: { readonly at: string; readonly past: string }): JSX.Element {
  const left = Date.parse(at) - now.value - ahead.value
  return (
    <time dateTime={at} title={clock(at)}>
      {left > 0 ? seconds(left) : past}
    </time>
  )
}
