import type { ConsumedEvent } from './handler.ts'

/** An event that a broker delivered, and how the broker learns the outcome. */
export interface Message<Event = ConsumedEvent> {
  readonly event: Event
  readonly bytes: number
  /** The transaction with its effect was committed, now or before: the broker need not deliver it again. */
  done(): Promise<unknown> | void
  /** It was not applied, and this process does not keep it. Left out: the broker delivers in order, and takes nothing back. */
  readonly again?: (() => Promise<unknown> | void) | undefined
}
