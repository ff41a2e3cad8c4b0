import { spawn } from 'node:child_process'

export interface CommandOptions {
  readonly cwd: string
  /** Beside those of this process; undefined takes one away. */
  readonly env?: NodeJS.ProcessEnv
  /** After this time, the program is killed together with everything that it has started. */
  readonly timeoutMs?: number
}

export interface CommandResult {
  readonly code: number
  /** Standard output alone, for programs whose answer is parsed. */
  readonly stdout: string
  /** Both streams in the order they arrived, for people. */
  readonly output: string
}

/**
 * Runs a program to its end. Hand-written because a timeout has to end the whole process group, which the timeout of `spawn` does not. A non-zero exit is an answer, not an exception; only a program that cannot start
 * rejects.
 */
export function command(program: string, args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  const { cwd, env, timeoutMs } = options
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd,
      // `npm run --silent` hands its silence down to the npm that a check starts, and with it the reason of a failure.
      env: { ...process.env, NO_COLOR: '1', npm_config_loglevel: 'error', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: timeoutMs !== undefined,
    })
    const both: Buffer[] = []
    const stdout: Buffer[] = []
    child.stdout.on('data', (chunk: Buffer) => {
      both.push(chunk)
      stdout.push(chunk)
    })
    child.stderr.on('data', (chunk: Buffer) => both.push(chunk))
    const release = timeoutMs === undefined ? () => undefined : boundGroup(child.pid, timeoutMs)
    child.once('error', (error) => {
      release()
      reject(error)
    })
    // 'close', not 'exit': after 'exit' the pipes may still hold the lines that explain the failure.
    child.once('close', (code, signal) => {
      release()
      const output = Buffer.concat(both).toString()
      resolve({
        code: code ?? 1,
        stdout: Buffer.concat(stdout).toString(),
        output: signal === null ? output : `${output}\nended by ${signal}`,
      })
    })
  })
}

/** Kills a process group after a time, or when this process is interrupted: a group of its own does not get the Ctrl-C of the terminal. */
function boundGroup(pid: number | undefined, timeoutMs: number): () => void {
  const kill = (): void => {
    try {
      if (pid !== undefined) process.kill(-pid, 'SIGKILL')
    } catch {
      // The group is gone already.
    }
  }
  const interrupted = (): void => {
    kill()
    process.exit(130)
  }
  const timer = setTimeout(kill, timeoutMs)
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted)
  return () => {
    clearTimeout(timer)
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted)
  }
}
