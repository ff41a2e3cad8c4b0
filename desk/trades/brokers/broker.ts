import type { DispatcherOptions } from 'pg-lockstep'

/** Where trades are published, and how they are read there. */
export interface Broker {
  readonly sink: DispatcherOptions['sink']
  /** Reads what was published, and books it, until the signal. It connects by itself: one that has failed begins again. */
  read(signal: AbortSignal): Promise<void>
  close(): Promise<void>
}

export const TOPIC = 'trades'
