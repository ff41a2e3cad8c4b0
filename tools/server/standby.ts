import { appendFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type BaseBackup, copyServer } from './baseBackup.ts'
import { type PostgresServer, startPostgres, type StopMode } from './postgres.ts'
import { IS_STANDBY, IS_SYNCHRONOUS, PROMOTE, RELOAD, WAIT_FOR_STANDBY } from './standby.sql.ts'
import { withClient } from './withClient.ts'

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

/** What a standby has of its own. */
export interface StandbyOptions {
  /** Its clock is so much ahead of the machine's; behind, where it is negative. */
  readonly clockOffsetMs?: number
}

/** Copies a primary, of whatever version, and has the copy follow it. */
export async function startStandby(
  primary: PostgresServer,
  settings: Readonly<Record<string, string>> = {},
  options: StandbyOptions = {},
): Promise<Standby> {
  const { port } = primary
  const copy = await copyServer(primary, 'standby.signal', {
    primary_conninfo: `host=127.0.0.1 port=${port} user=postgres application_name=standby`,
  })
  const server = await startOn(copy, primary, settings, options)
  return {
    server,
    makeSynchronous: () => makeSynchronous(primary),
    async promote() {
      await withClient(server.url(), (client) => client.query(PROMOTE))
      await recovered(server, 'the standby is not promoted')
    },
    async stop(mode) {
      await server.stop(mode)
      await copy.remove()
    },
  }
}

/** A copy of a server as it is now, from which it can be restored to a later moment. */
export interface RestorableCopy {
  /** Starts a server on the copy, with everything up to the restore point that the primary has named since. */
  restore(point: string): Promise<{ readonly server: PostgresServer; stop(mode?: StopMode): Promise<void> }>
}

/** Copies a server for a restore to a point in time. Its log is read where it is: the primary must not have removed it by then. */
export async function copyForRestore(primary: PostgresServer): Promise<RestorableCopy> {
  const log = join(primary.dataDir, 'pg_wal')
  const copy = await copyServer(primary, 'recovery.signal', {
    restore_command: `cp "${log}/%f" "%p"`,
    recovery_target_action: 'promote',
  })
  return {
    async restore(point) {
      await appendFile(join(copy.dataDir, 'postgresql.auto.conf'), `recovery_target_name = '${point}'\n`)
      const server = await startOn(copy, primary, {}, {})
      await recovered(server, 'the restored server does not come out of recovery')
      return {
        server,
        async stop(mode) {
          await server.stop(mode)
          await copy.remove()
        },
      }
    },
  }
}

async function startOn(
  copy: BaseBackup,
  { binaries }: PostgresServer,
  settings: Readonly<Record<string, string>>,
  { clockOffsetMs }: StandbyOptions,
): Promise<PostgresServer> {
  try {
    const { dataDir } = copy
    return await startPostgres({
      dataDir,
      binaries,
      settings,
      ...(clockOffsetMs === undefined ? {} : { clockOffsetMs }),
    })
  } catch (error) {
    await copy.remove()
    throw error
  }
}

/** Comes back when it takes writes. */
function recovered(server: PostgresServer, failure: string): Promise<void> {
  return withClient(server.url(), async (client) => {
    for (const deadline = performance.now() + FOLLOW_MS; performance.now() < deadline; await delay(10)) {
      const { rows } = await client.query<{ standby: boolean }>(IS_STANDBY)
      if (rows[0]?.standby === false) return
    }
    throw new Error(failure)
  })
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
