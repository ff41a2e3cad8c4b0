import { spawn } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { appendFile, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { PostgresBinaries } from './binaries.ts'
import type { Guard } from './guard.ts'
import { isAlive, processesWorkingIn, processIdentity, signal, waitUntilGone } from './processes.ts'
import { renewSystemIdentifier } from './systemIdentifier.ts'
import { giveTo, type Unprivileged } from './unprivileged.ts'

const settingsFile = 'lockstep.conf'
const ownerFile = 'lockstep.owner'

export interface Initialisation {
  readonly dataDir: string
  readonly binaries: PostgresBinaries
  readonly durable: boolean
  readonly user: Unprivileged
  readonly guard: Guard
  /** Whether the guard already removes a directory that holds this one. */
  readonly temporary: boolean
}

/**
 * Makes the data directory unless it is there. initdb works in a sibling that takes the final name only when it is
 * complete: a kill on the way leaves either no data directory or a whole one.
 */
export async function initialise(init: Initialisation): Promise<void> {
  const { dataDir, guard } = init
  await removeInterrupted(dataDir)
  if (existsSync(join(dataDir, 'PG_VERSION'))) return
  const unfinished = `${dataDir}.init-${process.pid}-${randomUUID().slice(0, 8)}`
  if (!init.temporary) guard.removeAfterwards(unfinished)
  try {
    if (!(await copyTemplate(init, unfinished))) await make(init, unfinished)
    await rename(unfinished, dataDir)
    if (init.durable) await syncDirectory(dirname(dataDir))
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true, maxRetries: 5 })
    // Someone else was faster: their directory is as good as ours. An empty one is replaced by the rename.
    if (!existsSync(join(dataDir, 'PG_VERSION'))) throw error
  } finally {
    if (!init.temporary) guard.keepFiles()
  }
}

async function make(init: Initialisation, directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await giveTo(init.user.owner, directory)
  await runInitdb(init, directory)
  // A file of its own, and not the command line, so that ALTER SYSTEM can still override a setting.
  await appendFile(join(directory, 'postgresql.conf'), `\ninclude_if_exists '${settingsFile}'\n`)
}

/**
 * initdb takes most of a second of a processor, a copy of what it makes a tenth, and the suite starts a hundred servers. So under
 * LOCKSTEP_DATA_TEMPLATES, a folder, what initdb has made is kept there, and temporary directories are copies of it. Each gets a system
 * identifier of its own. Says whether there was one to copy.
 */
async function copyTemplate(init: Initialisation, directory: string): Promise<boolean> {
  const folder = process.env['LOCKSTEP_DATA_TEMPLATES']
  if (!folder || !init.temporary) return false
  const template = await templateIn(folder, init).catch(() => undefined)
  if (template === undefined) return false
  try {
    await run(init, 'cp', ['-R', '-p', template, directory])
    await renewSystemIdentifier(directory)
    return true
  } catch {
    await rm(directory, { recursive: true, force: true, maxRetries: 5 })
    return false
  }
}

async function templateIn(folder: string, init: Initialisation): Promise<string> {
  const { initdb } = init.binaries
  const { mtimeMs, size } = await stat(initdb)
  const what = JSON.stringify([initdb, mtimeMs, size, init.user.owner ?? null])
  const template = join(folder, createHash('sha256').update(what).digest('hex').slice(0, 16))
  // It takes its name when it is complete; the second process deletes its own.
  if (existsSync(template)) return template
  await mkdir(folder, { recursive: true })
  await removeInterrupted(template)
  const unfinished = `${template}.init-${process.pid}-${randomUUID().slice(0, 8)}`
  try {
    await make(init, unfinished)
    await rename(unfinished, template)
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true, maxRetries: 5 })
    if (!existsSync(template)) throw error
  }
  return template
}

async function runInitdb(init: Initialisation, directory: string): Promise<void> {
  await run(init, init.binaries.initdb, [
    `--pgdata=${directory}`,
    '--username=postgres',
    '--auth=trust',
    '--encoding=UTF8',
    // macOS knows no C.UTF-8; plain C sorts the same bytes the same way.
    `--locale=${process.platform === 'linux' ? 'C.UTF-8' : 'C'}`,
    ...(init.durable ? [] : ['--no-sync']),
  ])
}

/** Runs a program as the server's user, to its end. */
async function run({ user, guard }: Initialisation, program: string, given: readonly string[]): Promise<void> {
  const [file, args] = user.command(program, given)
  const child = spawn(file, args, { ...user.spawnOptions, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  if (child.pid !== undefined) guard.watch(child.pid)
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
  try {
    const [code] = (await once(child, 'close')) as [number | null]
    if (code !== 0) throw new Error(`${basename(program)} failed with ${code}:\n${output}`)
  } finally {
    guard.forget()
  }
}

/** The guard removes these; they stay only where the guard was killed as well. */
async function removeInterrupted(dataDir: string): Promise<void> {
  const parent = dirname(dataDir)
  const prefix = `${basename(dataDir)}.init-`
  for (const entry of await readdir(parent)) {
    if (!entry.startsWith(prefix)) continue
    const pid = Number.parseInt(entry.slice(prefix.length), 10)
    if (!isAlive(pid)) await rm(join(parent, entry), { recursive: true, force: true, maxRetries: 5 })
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

export async function writeSettings(dataDir: string, settings: Readonly<Record<string, string>>): Promise<void> {
  const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`)
  await writeFile(join(dataDir, settingsFile), lines.join(''))
}

/**
 * Makes sure no server runs on this directory. One whose owner has died is stopped, unless its guard is about to do
 * just that; one whose owner is alive is in use, and stopping it would break that program.
 */
export async function evictOrphans(dataDir: string): Promise<void> {
  const pids = await serverProcesses(dataDir)
  if (pids.length === 0) return
  const owner = await readFile(join(dataDir, ownerFile), 'utf8').catch(() => '')
  const ownerPid = Number.parseInt(owner, 10)
  if (owner !== '' && processIdentity(ownerPid) === owner) {
    throw new Error(`${dataDir} is in use by process ${ownerPid}; stop that first or give another data directory`)
  }
  const postmaster = await recordedPostmaster(dataDir)
  for (const [name, timeoutMs] of [
    ['SIGINT', 2_000],
    ['SIGQUIT', 7_000],
    ['SIGKILL', 5_000],
  ] as const) {
    for (const pid of pids) {
      // Only a postmaster may be asked for an orderly end: its helpers give SIGINT meanings of their own.
      const orderly = name !== 'SIGKILL' && postmaster !== undefined && isAlive(postmaster)
      if (orderly && pid !== postmaster) continue
      signal(pid, orderly || name === 'SIGKILL' ? name : 'SIGQUIT')
      signal(pid, 'SIGCONT')
    }
    if (await waitUntilGone(pids, timeoutMs)) return
  }
  throw new Error(`${dataDir} is held by processes that cannot be killed: ${pids.filter(isAlive).join(', ')}`)
}

async function serverProcesses(dataDir: string): Promise<number[]> {
  if (process.platform === 'linux') return processesWorkingIn(dataDir)
  const pid = await recordedPostmaster(dataDir)
  return pid === undefined ? [] : [pid]
}

async function recordedPostmaster(dataDir: string): Promise<number | undefined> {
  const text = await readFile(join(dataDir, 'postmaster.pid'), 'utf8').catch(() => '')
  const pid = Number.parseInt(text, 10)
  return pid > 0 && isAlive(pid) ? pid : undefined
}

export async function claim(dataDir: string): Promise<void> {
  await writeFile(join(dataDir, ownerFile), processIdentity(process.pid) ?? '')
}
