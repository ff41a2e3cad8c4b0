import { AFTER_END_MS, cancelBackend } from '../locks/index.ts'
import type { Connection } from '../postgres/index.ts'
import type { LockstepContext } from './lockstepContext.ts'

/** A cancel of what a connection runs. */
export interface Cancel {
  /** The answer has come. Gives the cancel if it is on its way, which rejects if it is unknown whether it will still arrive. */
  settle(): Promise<unknown> | undefined
}

/** Cancels what a connection runs, where that is direct. */
export function cancelRunning({ driver, silence }: LockstepContext, connection: Connection): Cancel {
  let settled = false
  let sending: Promise<unknown> | undefined
  const cancel = async (): Promise<void> => {
    // Asked only now: with the message that is to be cancelled the driver may have learned which connection it is.
    const pid = connection.memory?.pooled === false ? connection.protocolPid : undefined
    // Behind others in the queue of the pool it would come too late: the connection is destroyed by then.
    if (pid === undefined || !(driver.hasIdle() || driver.hasCapacity())) return
    const other = await driver.connect()
    // Too late, it would hit whatever the connection runs next.
    if (!settled) sending = silence.script(other, cancelBackend(pid), 0, AFTER_END_MS)
    await sending?.catch(() => other.destroy())
    other.release()
  }
  void cancel().catch(() => undefined)
  return {
    settle() {
      settled = true
      return sending
    },
  }
}
