import { type ChildProcess, type Serializable, spawn } from 'node:child_process'
import { once } from 'node:events'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'

/** A process of its own that runs one of our files. It dies with us: its standard input is our pipe. */
export interface KillableProcess {
  /** What the process sends with `process.send` comes here. */
  readonly child: ChildProcess
  /** Sends a message and waits for the next one that comes back; fails if the process ends before. */
  ask<Answer>(message: Serializable): Promise<Answer>
  /** kill -9, and waits until it is gone. */
  kill(): Promise<void>
  /** SIGSTOP: it does nothing, and does not know that it was away. */
  stop(): void
  /** SIGCONT. */
  continue(): void
}

const LIFELINE = new URL('lifeline.ts', import.meta.url)

/** Starts it. */
export function startProcess(file: URL, args: readonly string[]): KillableProcess {
  const lifeline = nodeArguments(LIFELINE)
  const program = nodeArguments(file)
  const loader = program.slice(0, -1)
  const child = spawn(process.execPath, [...loader, '--import', lifeline.at(-1)!, program.at(-1)!, ...args], {
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
        ended.then(() => Promise.reject(new Error(`The process ${program.at(-1)} has ended.`))),
      ])
      return first
    },
    async kill() {
      child.kill('SIGKILL')
      await ended
    },
    stop: () => void child.kill('SIGSTOP'),
    continue: () => void child.kill('SIGCONT'),
  }
}
