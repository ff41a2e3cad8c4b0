import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'

interface ProcessStat {
  readonly state: string
  readonly parent: number
  /** Distinguishes a process from a later one with the same id. */
  readonly startTime: string
}

/** Linux has all of this in /proc; slim images have no `ps`, and macOS has no /proc. */
function readStat(pid: number): ProcessStat | undefined {
  if (process.platform === 'linux') {
    let text: string
    try {
      text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    } catch {
      return undefined
    }
    // The command's name stands in parentheses and may itself hold spaces and parentheses.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return { state: fields[0] ?? '', parent: Number(fields[1]), startTime: fields[19] ?? '' }
  }
  try {
    const line = execFileSync('ps', ['-o', 'state=,ppid=,lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim()
    const [state = '', parent = '', ...started] = line.split(/\s+/)
    return state === '' ? undefined : { state, parent: Number(parent), startTime: started.join('-') }
  } catch {
    return undefined
  }
}

/** A zombie has released its memory, files and sockets: for our purposes it is gone. */
export function isAlive(pid: number): boolean {
  const stat = readStat(pid)
  return stat !== undefined && !stat.state.startsWith('Z') && !stat.state.startsWith('X')
}

/** Identifies one process, so that a reused process id does not count as its predecessor. */
export function processIdentity(pid: number): string | undefined {
  const stat = readStat(pid)
  return stat === undefined ? undefined : `${pid} ${stat.startTime}`
}

export function childrenOf(parent: number): number[] {
  if (process.platform === 'linux') {
    return allPids().filter((pid) => readStat(pid)?.parent === parent)
  }
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' }).trim().split('\n')
  return lines
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter(([, ppid]) => ppid === parent)
    .map(([pid]) => pid ?? 0)
}

/**
 * Every PostgreSQL process works from inside its data directory. Only Linux can be asked this; elsewhere the answer is
 * empty and the caller has to make do with postmaster.pid.
 */
export function processesWorkingIn(directory: string): number[] {
  if (process.platform !== 'linux') return []
  return allPids().filter((pid) => {
    try {
      return readlinkSync(`/proc/${pid}/cwd`) === directory && isAlive(pid)
    } catch {
      return false
    }
  })
}

function allPids(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
}

/** `kill` that does not mind that the process has gone meanwhile. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** True once all of them are gone, false when some still live after the timeout. */
export async function waitUntilGone(pids: readonly number[], timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs
  while (pids.some(isAlive)) {
    if (performance.now() > deadline) return false
    await delay(10)
  }
  return true
}
