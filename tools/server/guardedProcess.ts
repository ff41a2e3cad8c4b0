import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import type { Guard } from './guard.ts'
import type { Unprivileged } from './unprivileged.ts'

export interface GuardedProcess {
  readonly child: ChildProcess
  /** How it ended; undefined while it runs. */
  readonly ending: () => string | undefined
}

export interface GuardedOptions {
  readonly user: Unprivileged
  readonly guard: Guard
  readonly logFile: string
  /** On top of this process's own. */
  readonly env?: Readonly<Record<string, string>>
}

/**
 * Runs a server under its guard, its output appended to a file: a pipe's reader may die first. Detached, because Ctrl-C
 * is for the program, which may want its database while it winds down.
 *
 * Nothing here is awaited: a server that fails at once ends while we wait, and its `exit` would find no listener.
 */
export function spawnGuarded(
  program: string,
  args: readonly string[],
  { user, guard, logFile, env }: GuardedOptions,
): GuardedProcess {
  let ending: string | undefined
  const log = openSync(logFile, 'a', 0o600)
  try {
    const child = spawn(...user.command(program, args), {
      ...user.spawnOptions,
      detached: true,
      stdio: ['ignore', log, log],
      env: { ...process.env, ...env },
    })
    if (child.pid !== undefined) guard.watch(child.pid)
    child.once('error', (error) => (ending = error.message))
    child.once('exit', (code, signalName) => {
      ending = `it ended with ${code ?? signalName}`
      guard.forget()
    })
    return { child, ending: () => ending }
  } finally {
    closeSync(log)
  }
}
