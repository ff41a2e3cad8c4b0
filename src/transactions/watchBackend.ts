import { type Connection, withConnection } from '../postgres/index.ts'
import type { Grounds } from './grounds.ts'
import type { Trace } from './open.ts'
import { isAtWork } from './transactions.sql.ts'

/**
 * While statements and COMMIT are on their way in one message, silence says nothing: one of them may wait for somebody else's row. So
 * the server is asked, through another connection, whether it is at work on that transaction. Where it is not, or does not answer
 * either, the connection is given up as any silent one is. The answer ends it.
 */
export function watchBackend(grounds: Grounds, connection: Connection, trace: Trace | undefined): () => void {
  if (trace === undefined) return () => undefined
  const { driver, silence } = grounds
  let over = false
  const look = async (): Promise<void> => {
    const atWork = await withConnection(driver, (other) => other.script(isAtWork(trace.pid, trace.xid)), silence).then(
      ([result]) => result?.rowCount === 1,
      () => false,
    )
    if (over) return
    if (atWork) again()
    else connection.destroy()
  }
  let timer: NodeJS.Timeout
  const again = (): void => {
    timer = setTimeout(() => void look(), silence.silenceMs)
    timer.unref()
  }
  again()
  return () => {
    over = true
    clearTimeout(timer)
  }
}
