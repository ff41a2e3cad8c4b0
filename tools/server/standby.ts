import { execFile } from 'node:child_process'
import { chmod, mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { startGuard } from './guard.ts'
import { type PostgresServer, startPostgres, type StopMode } from './postgres.ts'
import { clientProgram, SERVER_15 } from './postgres15.ts'
import { IS_SYNCHRONOUS, PROMOTE, RELOAD, WAIT_FOR_STANDBY } from './standby.sql.ts'
import { withClient } from './withClient.ts'

const run = promisify(execFile)
/** Enough to catch up with what was written since the copy was made. */
const FOLLOW_MS = 60_000

/** A second server that follows a first one. */
export interface Standby {
  readonly server: PostgresServer
  /** From here on the primary answers a COMMIT when it is on this one's disk, too. */
  makeSynchronous(): Promise<void>
  /** Makes it a primary, on a timeline of its own. */
  promote(): Promise<void>
  /** Its files are gone afterwards. */
  stop(mode?: StopMode): Promise<void>
}

/** Copies a primary of PostgreSQL 15 with pg_basebackup and has the copy follow it. */
export async function startStandby(
  primary: PostgresServer,
  settings: Readonly<Record<string, string>> = {},
): Promise<Standby> {
  const parent = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-standby-'))
  const guard = startGuard()
  guard.removeAfterwards(parent)
  const remove = async (): Promise<void> => {
    await rm(parent, { recursive: true, force: true, maxRetries: 5 })
    guard.dismiss()
  }
  try {
    // The server's user has to get in; the data itself is private to it.
    await chmod(parent, 0o755)
    const dataDir = join(parent, 'data')
    // The primary reads all its files for the copy; its log was opened by us, who may be root.
    await chmod(primary.logFile, 0o644)
    const options = ['--write-recovery-conf', '--checkpoint=fast', '--wal-method=stream', '--no-sync']
    await run(clientProgram('pg_basebackup'), [`--pgdata=${dataDir}`, `--dbname=${primary.url()}`, ...options])
    const server = await startPostgres({ dataDir, binariesFrom: SERVER_15, settings })
    return {
      server,
      makeSynchronous: () => makeSynchronous(primary),
      promote: () => withClient(server.url(), async (client) => void (await client.query(PROMOTE))),
      async stop(mode) {
        await server.stop(mode)
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}

function makeSynchronous(primary: PostgresServer): Promise<void> {
  return withClient(primary.url(), async (client) => {
    await client.query(WAIT_FOR_STANDBY)
    await client.query(RELOAD)
    const deadline = performance.now() + FOLLOW_MS
    while (performance.now() < deadline) {
      const { rows } = await client.query<{ yes: boolean }>(IS_SYNCHRONOUS)
      if (rows[0]?.yes === true) return
      await delay(10)
    }
    throw new Error('the standby does not follow')
  })
}
