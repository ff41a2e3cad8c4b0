import { TransactionControlError } from '../errors.ts'

/** What was asked for. The server would answer with the same in capitals. */
export type ControlCommand = 'begin' | 'commit' | 'rollback'

/** Something that was sent through a virtual client. One of the three is called, once. */
export interface VirtualStatement {
  /** Undefined where the driver's caller writes to the wire by itself. */
  readonly text: string | undefined
  /** Whether it can only be sent as it is: its caller waits for more than an answer. */
  readonly asItIs?: boolean
  /** Sends it as it is, and says later what the driver answered. */
  send(answered: Answered): void
  /** It has begun or ended a transaction, which the client's owner has done in another way. */
  carriedOut(what: ControlCommand): void
  refuse(error: unknown): void
}

/** `neverSent` is asked only of errors that the driver made up by itself. */
export type Answered = (failure?: { readonly error: unknown; readonly neverSent: () => boolean }) => void

/**
 * The owner of a virtual client: a client that has no connection of its own, but shares one with others. Each checkout has one. The
 * driver's side knows how statements look; this one knows whose turn it is, and what BEGIN means.
 */
export interface VirtualSession {
  /** Throws where it has ended. */
  assertOpen(): void
  submit(statement: VirtualStatement): void
  /** Another client that shares the same connection. */
  checkout(): VirtualSession
  /** Releases a checkout: what it had begun is rolled back. Throws if the caller cannot release it. */
  release(): void
  /** Runs a function in a transaction of this client, with a client of its own for it. `modes` as behind BEGIN. */
  nest<T>(modes: string, fn: (client: VirtualSession) => Promise<T>): Promise<T>
  /** Calls back when it has ended, by `release()` or with its transaction. */
  onEnd(cleanUp: () => void): void
}

/** Ending the connection is its owner's to do. */
export function refuseToEnd(method: string): never {
  throw new TransactionControlError(`tx.client.${method}() was called.`, {
    advice: 'Return from the function: Lockstep releases the connection.',
  })
}
