import type { DispatcherOptions, Lockstep } from 'pg-lockstep'
import type * as Library from 'pg-lockstep'

/*
 * What the API of older commits lacks of what this bench calls. Everything else that it calls has its present name since the first
 * measured commit.
 */

/** The library at that address, of this commit or of an older one. */
export async function loadLibrary(entry: string): Promise<typeof Library> {
  return (await import(entry)) as typeof Library
}

/** `lockstep.outbox.dispatcher()` was `lockstep.dispatcher()` once. */
export function withPresentNames(lockstep: Lockstep): Pick<Lockstep, 'transaction'> & {
  readonly outbox: Pick<Lockstep['outbox'], 'dispatcher'>
} {
  const { outbox } = lockstep
  if (typeof outbox.dispatcher === 'function') return lockstep
  const old = lockstep as unknown as Lockstep['outbox']
  return {
    transaction: lockstep.transaction.bind(lockstep),
    outbox: { dispatcher: (options: DispatcherOptions) => old.dispatcher(options) },
  }
}
