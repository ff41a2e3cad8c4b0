import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import pg from 'pg'
import { type Finding, Lockstep } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { ensureAlone } from '../../../tools/matrix/install.ts'
import { pinned } from '../../../tools/matrix/versions.ts'
import { missingOfBalanced, startBalanced } from '../../../tools/server/balanced.ts'
import { startIneffectiveLocks } from '../../../tools/server/ineffectiveLocks.ts'
import { nodeArguments } from '../../../tools/server/nodeArguments.ts'
import { startPgBouncer } from '../../../tools/server/pgbouncer.ts'
import { startPostgres } from '../../../tools/server/postgres.ts'
import type { Arena, Edge } from './edge.ts'

const COMMAND = nodeArguments(new URL('../../../src/cli/main.ts', import.meta.url))
const DATABASE = 'postgres'

/** `npx pg-lockstep doctor` in every setting: its verdict is that of the setting, and its exit code that of its verdict. */
export const doctor: Edge = {
  name: 'doctor',
  async run(arena) {
    const { lab, scaledDown } = arena
    const { rows } = await lab.admin.query<{ server_version: string }>('SHOW server_version')
    const version = rows[0]?.server_version.split('.')[0] ?? '?'
    const goals = [
      await verdict(arena, `PostgreSQL ${version}`, lab.url('direct'), []),
      await verdict(arena, 'PgBouncer in transaction mode', lab.url('pooled'), []),
      await inStatementMode(arena),
      await onStub(arena),
    ]
    // The programs that make a standby are of PostgreSQL 15.
    if (!scaledDown && version === '15') goals.push(...(await onOlder(arena)), ...(await onBalanced(arena)))
    return goals
  },
}

async function inStatementMode(arena: Arena): Promise<Goal> {
  await using bouncer = await startPgBouncer({ postgresPort: arena.lab.server.port, poolMode: 'statement' })
  return await verdict(arena, 'PgBouncer in statement mode', bouncer.url(DATABASE), ['locks', 'pooler'])
}

async function onStub(arena: Arena): Promise<Goal> {
  await using stub = await startIneffectiveLocks(arena.lab.url('direct'))
  return await verdict(arena, 'a stub whose locks do nothing', stub.url(arena.lab.url('direct')), ['locks'])
}

async function onOlder(arena: Arena): Promise<readonly Goal[]> {
  const oldest = pinned('pg')[0]
  if (oldest === undefined) throw new Error('the matrix has no PostgreSQL')
  ensureAlone(oldest)
  await using server = await startPostgres({ binariesFrom: oldest.alias })
  await migrate(server.url())
  return [await verdict(arena, `PostgreSQL ${oldest.major}`, server.url(), [])]
}

async function onBalanced(arena: Arena): Promise<readonly Goal[]> {
  const missing = missingOfBalanced()
  if (missing !== undefined) throw new Error(`${missing} is not installed: see tools/prepare.ts`)
  const goals: Goal[] = []
  for (const mode of ['on', 'off'] as const) {
    await using servers = await startBalanced({ settings: { load_balance_mode: mode } })
    await migrate(servers.primary.url())
    await servers.caughtUp()
    const failed = mode === 'on' ? ['locks', 'pooler'] : []
    goals.push(await verdict(arena, `Pgpool with load_balance_mode ${mode}`, servers.pgpool.url(DATABASE), failed))
    if (mode === 'on') goals.push(await verdict(arena, 'a standby', servers.standby.url(), ['standby']))
  }
  return goals
}

async function migrate(url: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 2 })
  await new Lockstep(pool).migrate()
  await pool.end()
}

/** Runs the command. The goal's name says what it must say. */
async function verdict(
  { driver, reportProgress }: Arena,
  where: string,
  url: string,
  expected: readonly string[],
): Promise<Goal> {
  reportProgress(`edges: doctor on ${where} with ${driver}`)
  const args = [...COMMAND, 'doctor', '--json', '--driver', driver, '--url', url]
  const ran = promisify(execFile)(process.execPath, args)
  const { code, stdout } = await ran.then(
    (done) => ({ code: 0, stdout: done.stdout }),
    (error: { code: number; stdout: string }) => error,
  )
  const { findings = [] } = JSON.parse(stdout) as { findings?: Finding[] }
  const failed = findings.filter(({ level }) => level === 'fail').map(({ name }) => name)
  const right = findings.length > 0 && failed.join() === expected.join() && code === (expected.length === 0 ? 0 : 1)
  const says = expected.length === 0 ? 'Lockstep can keep every guarantee' : `fails: ${expected.join(', ')}`
  return goal(`${where}: ${says}`, right ? 1 : 0, '=', 1)
}
