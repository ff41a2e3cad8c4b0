import { setTimeout as sleep } from 'node:timers/promises'

/** A process that can be stopped and continues as if nothing had been. */
export interface Stoppable {
  stop(): void
  continue(): void
}

/**
 * Stops a process in the middle of something: what is seen of it then does not change by itself. `inFlight` says what it is in the middle
 * of. Where that is nothing, the process continues and is stopped again a moment later: a fault that strikes nothing shows nothing.
 * Undefined, with the process continuing, where `goesOn` ends the search.
 */
export async function stopInFlight<Of>(
  victim: Stoppable,
  inFlight: () => Promise<Of | undefined>,
  { pauseMs, goesOn }: { readonly pauseMs: () => number; readonly goesOn: () => boolean },
): Promise<Of | undefined> {
  while (goesOn()) {
    await sleep(pauseMs())
    victim.stop()
    const found = await inFlight().catch((error: unknown) => {
      victim.continue()
      throw error
    })
    if (found !== undefined) return found
    victim.continue()
  }
  return undefined
}
