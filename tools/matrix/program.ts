import { spawn } from 'node:child_process'

export interface ProgramResult {
  readonly code: number | null
  readonly stdout: string
  readonly output: string
  readonly timedOut: boolean
}

/** Runs a program in a process group of its own, so that a cell that hangs goes with everything it has started. */
export function runProgram(
  program: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv; readonly timeoutMs: number },
): Promise<ProgramResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: options.env,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    let stdout = ''
    let output = ''
    let timedOut = false
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
      output += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
    const endGroup = (): void => {
      if (child.pid === undefined) return
      try {
        process.kill(-child.pid, 'SIGKILL')
      } catch {
        // The group is gone already.
      }
    }
    const timer = setTimeout(() => {
      timedOut = true
      endGroup()
    }, options.timeoutMs)
    // A group of its own does not hear the terminal's Ctrl-C.
    const interrupted = (): void => {
      endGroup()
      process.exit(130)
    }
    process.once('SIGINT', interrupted)
    process.once('SIGTERM', interrupted)
    const finished = (): void => {
      clearTimeout(timer)
      process.off('SIGINT', interrupted)
      process.off('SIGTERM', interrupted)
    }
    child.once('error', (error) => {
      finished()
      reject(error)
    })
    child.once('close', (code) => {
      finished()
      resolve({ code, stdout, output, timedOut })
    })
  })
}
