import { type Connection, type Pending, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from './lockstepContext.ts'
import type { Trace } from './open.ts'
import { isAtWork } from './transactions.sql.ts'

/**
 * While statements and COMMIT are in progress in one message, silence proves nothing: one of them can wait for a row of another session. So
 * the server is asked, through another connection, whether it is at work on that transaction. Where it is not, or does not answer
 * either, the connection is given up as any silent one is. The answer ends it.
 */
export function watchBackend(context: LockstepContext, connection: Connection, trace: Trace | undefined): Pending {
  const { driver, silence } = context
  if (trace === undefined) return silence.start(connection, Infinity)
  const look = async (): Promise<void> => {
    const atWork = await withConnection(driver, (other) => other.script(isAtWork(trace.pid, trace.xid)), silence).then(
      ([result]) => result?.rowCount === 1,
      () => false,
    )
    if (silence.goOn(pending) && !atWork) connection.destroy(true)
  }
  const pending = silence.start(connection, 0, () => void look())
  return pending
}
