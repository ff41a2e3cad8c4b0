import { execFile } from 'node:child_process'
import { appendFile, chmod, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { beginBackup, endBackup, MAJOR } from './baseBackup.sql.ts'
import { type Guard, startGuard } from './guard.ts'
import type { PostgresServer } from './postgres.ts'

const run = promisify(execFile)

/** Of the primary alone: its processes, its log, who owns it. The log of transactions comes from the primary itself. */
const LEFT_OUT = new Set(['postmaster.pid', 'postmaster.opts', 'server.log', 'lockstep.owner', 'pg_wal'])

/** A copy of a running server's files, which a server of the same binaries can be started on. */
export interface BaseBackup {
  readonly dataDir: string
  remove(): Promise<void>
}

/**
 * Copies a server of any version while it runs, as pg_basebackup does, which the npm packages do not have: what was torn is repaired by
 * replaying the log from the beginning of the copy on. `recovery` are settings, and `signal` the file that says what to do with them.
 */
export async function copyServer(
  primary: PostgresServer,
  signal: 'standby.signal' | 'recovery.signal',
  recovery: Readonly<Record<string, string>>,
): Promise<BaseBackup> {
  const parent = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-standby-'))
  const guard: Guard = startGuard()
  guard.removeAfterwards(parent)
  const remove = async (): Promise<void> => {
    await rm(parent, { recursive: true, force: true, maxRetries: 5 })
    guard.dismiss()
  }
  const client = new pg.Client({ connectionString: primary.url() })
  try {
    // The server's user has to get in; the data itself is private to it.
    await chmod(parent, 0o755)
    await client.connect()
    const { rows: versions } = await client.query<{ major: number }>(MAJOR)
    const major = versions[0]?.major ?? 0
    const dataDir = join(parent, 'data')
    await client.query(beginBackup(major))
    await copyFiles(primary.dataDir, dataDir)
    const { rows } = await client.query<{ labelfile: string }>(endBackup(major))
    await writeFile(join(dataDir, 'backup_label'), rows[0]?.labelfile ?? '')
    await writeFile(join(dataDir, signal), '')
    const lines = Object.entries(recovery).map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`)
    await appendFile(join(dataDir, 'postgresql.auto.conf'), lines.join(''))
    return { dataDir, remove }
  } catch (error) {
    await remove()
    throw error
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** A file that vanishes on the way, such as one of a dropped table, is not needed: the log says so as well. */
async function copyFiles(from: string, to: string): Promise<void> {
  await run('mkdir', ['-m', '0700', to])
  const entries = (await readdir(from)).filter((name) => !LEFT_OUT.has(name) && !name.startsWith('pgsql_tmp'))
  await run('cp', ['-R', '-p', ...entries.map((name) => join(from, name)), to]).catch((error: unknown) => {
    const { stderr } = error as { stderr?: string }
    const others = (stderr ?? 'cp failed').split('\n').filter((line) => line !== '' && !line.includes('No such file'))
    if (others.length > 0) throw error
  })
  await run('mkdir', ['-m', '0700', join(to, 'pg_wal'), join(to, 'pg_wal', 'archive_status')])
}
