import type { Context } from 'hono'

/** As of RFC 7240: `Prefer: wait=5`. */
const WAIT = /(?:^|[,;])\s*wait\s*=\s*(\d{1,4})\s*(?:[,;]|$)/i
const ENTITY_TAG = /^"([^"]*)"$/

/** How long the client wants to wait for its turn, in milliseconds; 0 where it does not. */
export function preferredWaitMs(c: Context, mostMs: number): number {
  const seconds = WAIT.exec(c.req.header('prefer') ?? '')?.[1]
  return seconds === undefined ? 0 : Math.min(Number(seconds) * 1000, mostMs)
}

/** The states that a client expects, by `If-Match` and by the body; undefined where it expects none. */
export function expectedStates(c: Context, from: string | undefined): readonly string[] | undefined {
  const header = c.req.header('if-match')?.trim()
  if (header === undefined || header === '*') return from === undefined ? undefined : [from]
  // One that is no entity tag of ours names no state.
  const named = header.split(',').map((tag) => ENTITY_TAG.exec(tag.trim())?.[1] ?? tag.trim())
  return from === undefined ? named : named.filter((state) => state === from)
}
