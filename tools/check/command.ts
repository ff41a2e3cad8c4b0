import { spawn } from 'node:child_process'

export interface CommandOptions {
  readonly cwd: string
  readonly env?: NodeJS.ProcessEnv
}

export interface CommandResult {
  readonly code: number
  /** Standard output alone, for programs whose answer is parsed. */
  readonly stdout: string
  /** Both streams in the order they arrived, for people. */
  readonly output: string
}

/** Runs a program to its end. A non-zero exit is an answer, not an exception; only a program that cannot start rejects. */
export function command(program: string, args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: options.cwd,
      // `npm run --silent` hands its silence down to the npm that a check starts, and with it the reason of a failure.
      env: { ...process.env, NO_COLOR: '1', npm_config_loglevel: 'error', ...options.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const both: Buffer[] = []
    const stdout: Buffer[] = []
    child.stdout.on('data', (chunk: Buffer) => {
      both.push(chunk)
      stdout.push(chunk)
    })
    child.stderr.on('data', (chunk: Buffer) => both.push(chunk))
    child.once('error', reject)
    // 'close', not 'exit': after 'exit' the pipes may still hold the lines that explain the failure.
    child.once('close', (code, signal) => {
      const output = Buffer.concat(both).toString()
      resolve({
        code: code ?? 1,
        stdout: Buffer.concat(stdout).toString(),
        output: signal === null ? output : `${output}\nended by ${signal}`,
      })
    })
  })
}
