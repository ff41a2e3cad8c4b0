import type { ConsumedEvent } from './handler.ts'

/** An event that a broker delivered, and how the broker learns the outcome. */
export interface Message<Event = ConsumedEvent> {
  readonly event: Event
  readonly bytes: number
  /** The transaction with its effect was committed, now or before: the broker need not deliver it again. */
  done(): Promise<unknown> | void
  /** It was not applied, and this process does not keep it. Left out: the broker delivers in order, and takes nothing back. */
  readonly again?: (() => Promise<unknown> | void) | undefined
  /**
   * What the broker calls it. One that comes with the name of an earlier one is another delivery of the same message, and takes the place of that
   * one, if it is not in a transaction yet.
   */
  readonly name?: string | undefined
  /** What it was delivered on. When that is lost, the broker delivers its messages again: see `forget()`. */
  readonly session?: object | undefined
}
