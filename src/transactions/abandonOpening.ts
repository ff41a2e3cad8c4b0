import type { LockHolder } from '../errors.ts'
import { findHolders, type LockSet } from '../locks/index.ts'
import { codeOf, type Connection, type SilenceWatch } from '../postgres/index.ts'
import { rollBack } from './connections.ts'

/** How long the server may take for what its caller does not wait for: longer than a slice of waiting. */
const LEFT_BEHIND_MS = 3000

/** Ends the transaction of an opening, and releases the connection or destroys it. */
export function abandonOpening(connection: Connection, silence: SilenceWatch, leaving: string): Promise<boolean> {
  return rollBack(connection, silence, { text: leaving, withinMs: LEFT_BEHIND_MS })
}

/** The same, with a look at who holds the locks. Never rejects. */
export async function abandonAndFindHolders(
  connection: Connection,
  silence: SilenceWatch,
  leaving: string,
  locks: LockSet,
): Promise<LockHolder[]> {
  const pending = silence.start(connection, 0, undefined, LEFT_BEHIND_MS)
  try {
    await connection.script(leaving)
    const holders = locks.length === 0 ? [] : await findHolders(connection, locks).catch(() => [])
    connection.release()
    return holders
  } catch {
    connection.destroy()
    return []
  } finally {
    silence.stop(pending)
  }
}

/** The same for a message that is not answered yet. */
export async function abandonAfterAnswer(
  answer: Promise<unknown>,
  connection: Connection,
  silence: SilenceWatch,
  leaving: string,
): Promise<void> {
  const pending = silence.start(connection, 0, undefined, LEFT_BEHIND_MS)
  const usable = await answer.then(
    () => true,
    (error: unknown) => codeOf(error) !== undefined,
  )
  silence.stop(pending)
  if (usable && !connection.lost) await abandonOpening(connection, silence, leaving)
  else connection.destroy()
}
