import { AFTER_END_MS, cancelBackend, type Patience } from '../locks/index.ts'
import type { Connection } from '../postgres/index.ts'
import type { Grounds } from './grounds.ts'

/**
 * Where the connection is direct, an abort cancels what it runs. The answer ends that, and gives the cancel that is on its way, which
 * rejects where nobody knows whether it will still arrive.
 */
export function cancelOnAbort(
  { driver, silence }: Grounds,
  connection: Connection,
  patience: Patience,
): () => Promise<unknown> | undefined {
  let settled = false
  let sending: Promise<unknown> | undefined
  const cancel = async (): Promise<void> => {
    // Asked only now: with the message that is to be cancelled the driver may have learned which connection it is.
    const pid = connection.memory?.pooled === false ? connection.protocolPid : undefined
    // Behind others in the queue of the pool it would come too late: the connection is destroyed by then.
    if (pid === undefined || !(driver.hasIdle() || driver.hasRoom())) return
    const other = await driver.connect()
    // Too late, it would hit whatever the connection runs next.
    if (!settled) sending = silence.script(other, cancelBackend(pid), 0, AFTER_END_MS)
    await sending?.catch(() => other.destroy())
    other.release()
  }
  const forget = patience.onAbort(() => void cancel().catch(() => undefined))
  return () => {
    settled = true
    forget()
    return sending
  }
}
