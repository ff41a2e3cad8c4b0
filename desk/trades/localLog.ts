import { setTimeout as delay } from 'node:timers/promises'
import { key, type OutboxEvent } from 'pg-lockstep'
import type { Desk, DeskEvents } from '../desk.ts'
import { book, READER } from './book.ts'
import { ACKNOWLEDGE, APPEND, POSITION_OF, READ_LOG } from './trades.sql.ts'

const BATCH = 200
/** How soon a reader that has read everything looks again. */
const PAUSE_MS = 150

/** A sink: a table to which events are appended. It stands for a broker, so that the desk needs none. */
export function localLog({ lockstep }: Desk) {
  return async function localLogSink(events: readonly OutboxEvent[]): Promise<void> {
    // One append at a time. Otherwise a position could become visible after a larger one, and a reader would skip it.
    await lockstep.transaction({ lock: key`TradeLog:append` }, async (tx) => {
      await tx.query(APPEND, [
        events.map((event) => event.key),
        events.map(({ seq }) => seq),
        events.map(({ id }) => id),
        events.map(({ tombstone }) => tombstone ?? null),
        events.map(({ payload }) => (payload === undefined ? null : JSON.stringify(payload))),
      ])
    })
  }
}

interface LogRow {
  readonly position: number
  readonly portfolio: string
  readonly seq: number
  readonly event: string
  readonly tombstone: string | null
  readonly payload: DeskEvents['trades'] | null
}

/**
 * Reads the log as a broker's consumer would: what was handled is acknowledged after it. A process that dies in between reads it again,
 * and the inbox knows it.
 */
export async function readLocalLog({ pool, lockstep }: Desk, signal: AbortSignal): Promise<void> {
  const { rows: begun } = await pool.query<{ position: number }>(POSITION_OF, [READER])
  let position = begun[0]?.position ?? 0
  while (!signal.aborted) {
    const { rows } = await pool.query<LogRow>(READ_LOG, [position, BATCH])
    const last = rows.at(-1)
    if (last === undefined) {
      await delay(PAUSE_MS, undefined, { signal }).catch(() => undefined)
      continue
    }
    await book(lockstep, rows.map(eventOf))
    await pool.query(ACKNOWLEDGE, [READER, last.position])
    position = last.position
  }
}

function eventOf({ portfolio, seq, event, tombstone, payload }: LogRow) {
  return {
    topic: 'trades',
    key: portfolio,
    seq,
    id: event,
    ...(tombstone !== null && { tombstone }),
    ...(payload !== null && { payload }),
  }
}
