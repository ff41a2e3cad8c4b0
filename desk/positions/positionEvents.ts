import { channel } from 'node:diagnostics_channel'
import type { Key } from 'pg-lockstep'

/** What happens to positions beside the answers to requests: for the log and the metrics. */
export type PositionEvent =
  /** The reconciler has compared exchange and desk. */
  | { readonly kind: 'round'; readonly tookMs: number; readonly differences: number; readonly repairs: number }
  /** The reconciler has made exchange and desk agree again: what was begun is completed, or a stop-loss is there again. */
  | { readonly kind: 'repaired'; readonly position: Key }
  /** It could not; the next round tries again. */
  | { readonly kind: 'not repaired'; readonly position: Key; readonly reason: string }
  /** A position that the exchange has and the desk did not know is the desk's now. */
  | { readonly kind: 'adopted'; readonly position: Key }
  /** A signal, or the reconciler, wanted to open what is open already, and got that. */
  | { readonly kind: 'duplicate avoided'; readonly position: Key; readonly path: 'signal' | 'reconciler' }

const events = channel('desk:positions')

export function reportPosition(event: PositionEvent): void {
  events.publish(event)
}

/** Listens to all of this process. The function that it returns stops it. */
export function onPosition(listener: (event: PositionEvent) => void): () => void {
  // A function of its own, so that stopping one listener never stops another.
  const own = (message: unknown): void => listener(message as PositionEvent)
  events.subscribe(own)
  return () => {
    events.unsubscribe(own)
  }
}
