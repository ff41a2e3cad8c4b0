import { setTimeout as delay } from 'node:timers/promises'
import { type Pgpool, type PgpoolOptions, pgpoolAvailable, startPgpool } from './pgpool.ts'
import { type PostgresServer, startPostgres } from './postgres.ts'
import { missingOf15, SERVER_15 } from './postgres15.ts'
import { startStandby } from './standby.ts'
import { HAS_REPLAYED, WAL_POSITION } from './standby.sql.ts'
import { withClient } from './withClient.ts'

/** A primary of PostgreSQL 15, its streaming standby, and Pgpool-II before the two. */
export interface Balanced {
  readonly primary: PostgresServer
  readonly standby: PostgresServer
  readonly pgpool: Pgpool
  /** Comes back when the standby has what the primary has now. */
  caughtUp(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

const FOLLOW_MS = 60_000

/** What is not installed of it; undefined where everything is there. */
export function missingOfBalanced(): string | undefined {
  return missingOf15() ?? (pgpoolAvailable() ? undefined : 'pgpool2')
}

export async function startBalanced(options: Pick<PgpoolOptions, 'settings' | 'weights'> = {}): Promise<Balanced> {
  const primary = await startPostgres({ binariesFrom: SERVER_15 })
  const ends: (() => Promise<unknown>)[] = [() => primary.stop('immediate')]
  const end = async (): Promise<void> => {
    for (const each of ends.splice(0).toReversed()) await each()
  }
  try {
    const standby = await startStandby(primary)
    ends.push(() => standby.stop('immediate'))
    const ports = { primaryPort: primary.port, standbyPort: standby.server.port }
    const pgpool = await startPgpool({ ...ports, ...options })
    ends.push(() => pgpool.stop())
    return {
      primary,
      standby: standby.server,
      pgpool,
      caughtUp: () => waitForStandby(primary, standby.server),
      [Symbol.asyncDispose]: end,
    }
  } catch (error) {
    await end()
    throw error
  }
}

async function waitForStandby(primary: PostgresServer, standby: PostgresServer): Promise<void> {
  const ask = (server: PostgresServer, text: string, values: string[] = []): Promise<string> =>
    withClient(server.url(), async (client) => {
      return (await client.query<{ answer: string }>(text, values)).rows[0]?.answer ?? ''
    })
  const position = await ask(primary, WAL_POSITION)
  const deadline = performance.now() + FOLLOW_MS
  while ((await ask(standby, HAS_REPLAYED, [position])) !== 'true') {
    if (performance.now() > deadline) throw new Error('the standby does not follow')
    await delay(20)
  }
}
