import { type ChildProcess, type Serializable, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

/** A process of its own that runs one of our files. It dies with us: its standard input is our pipe. */
export interface KillableProcess {
  /** What the process sends with `process.send` comes here. */
  readonly child: ChildProcess
  /** Sends a message and waits for the next one that comes back; fails if the process ends before. */
  ask<Answer>(message: Serializable): Promise<Answer>
  /** kill -9, and waits until it is gone. */
  kill(): Promise<void>
  signal(name: NodeJS.Signals): void
}

/** As this file is: TypeScript in the repository, JavaScript in the package. */
export const SUFFIX = import.meta.url.endsWith('.ts') ? '.ts' : '.js'
const LIFELINE = new URL(`lifeline${SUFFIX}`, import.meta.url)
const LOADER = SUFFIX === '.ts' ? ['--import', 'tsx'] : []

/** Starts it. */
export function startProcess(file: URL, args: readonly string[]): KillableProcess {
  const program = fileURLToPath(file)
  const child = spawn(process.execPath, [...LOADER, '--import', LIFELINE.href, program, ...args], {
    stdio: ['pipe', 'ignore', 'inherit', 'ipc'],
  })
  const ended = once(child, 'exit')
  return {
    child,
    async ask<Answer>(message: Serializable) {
      const answer = once(child, 'message') as Promise<[Answer]>
      child.send(message)
      const [first] = await Promise.race([
        answer,
        ended.then(() => Promise.reject(new Error(`The process ${program} has ended.`))),
      ])
      return first
    },
    async kill() {
      child.kill('SIGKILL')
      await ended
    },
    signal: (name) => void child.kill(name),
  }
}
