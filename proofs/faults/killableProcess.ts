import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

/** A process of its own that runs one of our TypeScript files. It dies with us: its standard input is our pipe. */
export interface KillableProcess {
  readonly child: ChildProcess
  /** kill -9, and waits until it is gone. */
  kill(): Promise<void>
  signal(name: NodeJS.Signals): void
}

const LIFELINE = new URL('lifeline.ts', import.meta.url)

/** Starts it. Paths are relative to this folder. */
export function startProcess(file: string, args: readonly string[]): KillableProcess {
  const program = fileURLToPath(new URL(file, import.meta.url))
  const child = spawn(process.execPath, ['--import', 'tsx', '--import', LIFELINE.href, program, ...args], {
    stdio: ['pipe', 'ignore', 'inherit'],
  })
  const ended = once(child, 'exit')
  return {
    child,
    async kill() {
      child.kill('SIGKILL')
      await ended
    },
    signal: (name) => void child.kill(name),
  }
}
