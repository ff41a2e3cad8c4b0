import { readText } from '../transactions/index.ts'
import { limitStatements } from './console.sql.ts'
import type { ConsoleLockstep } from './consoleOptions.ts'

/** What is given to a statement of the console's own. */
export type OwnValue = string | null

/** A look waits no longer than this for a connection of the pool. */
const WAIT_MS = 10_000

/**
 * The rows of a statement of the console's own, as text: in a transaction without a lock that takes no id. It leaves nothing behind, and so it
 * may be cut off at any time, by the server as well.
 */
export async function readOwnRows<Row>(
  lockstep: ConsoleLockstep,
  text: string,
  values: readonly OwnValue[],
  timeoutMs?: number,
): Promise<Row[]> {
  // It asks for all viewers: a transaction around the first of them has nothing to do with it.
  const { rows } = await lockstep.detached(() =>
    lockstep.transaction({ retry: false, waitMs: WAIT_MS }, async (tx) => {
      if (timeoutMs !== undefined) await readText(tx, limitStatements(timeoutMs))
      return readText(tx, text, values)
    }),
  )
  return rows as unknown as Row[]
}
