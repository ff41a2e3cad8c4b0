import pg from 'pg'
import { type ServerProgram, startRestartable } from './restartableServer.ts'

/** A connection pooler of our own, on 127.0.0.1. */
export interface Pooler {
  readonly port: number
  readonly logFile: string
  url(database: string): string
  stop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

export interface PoolerProgram extends Omit<ServerProgram, 'isReady'> {
  /** The user of the URLs. */
  readonly user: string
  /** What is asked until it is ready, in which database, and whether these rows say so. */
  readonly question: string
  readonly database: string
  readonly isReady: (rows: readonly Readonly<Record<string, unknown>>[]) => boolean
}

export async function startPooler(program: PoolerProgram): Promise<Pooler> {
  const { user, question, database, isReady } = program
  const server = await startRestartable({
    ...program,
    async isReady(port) {
      const client = new pg.Client({ host: '127.0.0.1', port, user, database, connectionTimeoutMillis: 5_000 })
      client.on('error', () => {})
      try {
        await client.connect()
        return isReady((await client.query<Record<string, unknown>>(question)).rows)
      } catch {
        return false
      } finally {
        await client.end().catch(() => {})
      }
    },
  })
  const { port, logFile } = server
  const stop = (): Promise<void> => server.stop()
  return {
    port,
    logFile,
    url: (name) => `postgres://${encodeURIComponent(user)}@127.0.0.1:${port}/${encodeURIComponent(name)}`,
    stop,
    [Symbol.asyncDispose]: stop,
  }
}
