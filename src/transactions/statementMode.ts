import { LocksIneffectiveError } from '../errors.ts'
import { codeOf, type Driver, findCause, type SilenceWatch, withConnection } from '../postgres/index.ts'
import { BEGIN, PROBE, ROLLBACK } from './transactions.sql.ts'

/** How PgBouncer closes a connection, as `pg` and as postgres.js report it. It has other reasons, too. */
const CLOSED_CODES: ReadonlySet<string> = new Set(['08P01', 'CONNECTION_CLOSED'])

/** Once may be a server that goes down at this moment. */
const TIMES = 2

/**
 * The error for a pooler in statement mode; undefined where it is something else. Such a pooler answers a statement, and closes the
 * connection when one leaves a transaction open.
 */
export async function transactionsRefused(
  driver: Driver,
  silence: SilenceWatch,
  error: unknown,
): Promise<LocksIneffectiveError | undefined> {
  if (findCause(error, (candidate) => CLOSED_CODES.has(codeOf(candidate) ?? '')) === undefined) return undefined
  try {
    for (let time = 0; time < TIMES; time++) if (!(await closesOnBegin(driver, silence))) return undefined
  } catch {
    return undefined
  }
  return new LocksIneffectiveError('A pooler on the way refuses transactions: it is in statement mode.', {
    reason: 'transactions refused',
    advice: 'Set its pool_mode to transaction or session, or connect to the server.',
    cause: error,
  })
}

function closesOnBegin(driver: Driver, silence: SilenceWatch): Promise<boolean> {
  return withConnection(
    driver,
    async (connection) => {
      await connection.script(PROBE)
      try {
        await connection.script(BEGIN)
      } catch {
        connection.destroy()
        return true
      }
      await connection.script(ROLLBACK)
      return false
    },
    silence,
  )
}
