import {
  codeOf,
  type Connection,
  FEATURE_NOT_SUPPORTED,
  READ_ONLY_TRANSACTION,
  standbyRefused,
  withConnection,
} from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { ROLL_BACK_AND_ASK } from './outbox.sql.ts'

/** The SQLSTATEs with which a standby refuses a write, and a read of an unlogged table. */
const STANDBY_STATES: ReadonlySet<string> = new Set([READ_ONLY_TRANSACTION, FEATURE_NOT_SUPPORTED])

/**
 * Lends a connection for work that a standby cannot do, and reports a standby as that. Whether the server is one was asked before the first
 * transaction; since then its address may lead to another, and a primary can say the same for other reasons.
 */
export function onPrimary<T>(
  { driver, silence }: LockstepContext,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  return withConnection(
    driver,
    async (connection) => {
      try {
        return await work(connection)
      } catch (error) {
        if (STANDBY_STATES.has(codeOf(error) ?? '') && (await isStandby(connection))) throw standbyRefused()
        throw error
      }
    },
    silence,
  )
}

async function isStandby(connection: Connection): Promise<boolean> {
  const results = await connection.script(ROLL_BACK_AND_ASK).catch(() => [])
  return results.some(({ rows }) => rows[0]?.['standby'] === 'true')
}
