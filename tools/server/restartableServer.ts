import { once } from 'node:events'
import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { startGuard } from './guard.ts'
import { type GuardedProcess, spawnGuarded } from './guardedProcess.ts'
import { signal } from './processes.ts'
import { giveTo, unprivileged } from './unprivileged.ts'

/** A server of our own, on 127.0.0.1, that can be killed and started again. */
export interface RestartableServer {
  readonly port: number
  readonly logFile: string
  /** SIGKILL. Comes back when it is gone. */
  kill(): Promise<void>
  /** Starts it again on the same port, with what it wrote. */
  start(): Promise<void>
  stop(): Promise<void>
}

export interface ServerProgram {
  readonly name: string
  readonly args: (port: number, directory: string) => readonly string[]
  /** Writes its configuration. */
  readonly configure?: (port: number, directory: string) => Promise<void>
  /** A server may accept connections before it has read its files: this asks whether it is ready. */
  readonly isReady: (port: number) => Promise<boolean>
  /** Default: 10 seconds. */
  readonly readyMs?: number
  /** What ends it at once, without its clients. Default: SIGKILL. */
  readonly stopSignal?: NodeJS.Signals
}

const READY_MS = 10_000
const LOOK_EVERY_MS = 15

/** Starts a program that listens on one port, in a directory of its own. */
export async function startRestartable(server: ServerProgram): Promise<RestartableServer> {
  const program = findProgram(server.name)
  if (program === undefined) throw new Error(`${server.name} is not installed: see tools/prepare.ts`)
  const directory = await mkdtemp(join(await realpath(tmpdir()), `lockstep-${server.name}-`))
  const logFile = join(directory, 'server.log')
  const guard = startGuard()
  guard.removeAfterwards(directory)
  let running: GuardedProcess | undefined
  const end = async (by: NodeJS.Signals): Promise<void> => {
    if (running?.child.pid === undefined || running.ending() !== undefined) return
    // Its exit makes the guard forget it: that must not hit the next one.
    const gone = once(running.child, 'exit')
    signal(running.child.pid, by)
    signal(running.child.pid, 'SIGCONT')
    await gone
  }
  const stop = async (): Promise<void> => {
    await end(server.stopSignal ?? 'SIGKILL')
    await rm(directory, { recursive: true, force: true })
    guard.dismiss()
  }
  try {
    const user = await unprivileged([dirname(directory), program])
    const launch = async (port: number): Promise<void> => {
      running = spawnGuarded(program, server.args(port, directory), { user, guard, logFile })
      const ready = async (): Promise<true | undefined> => (await server.isReady(port)) || undefined
      await untilReady(ready, { name: server.name, server: running, logFile, readyMs: server.readyMs ?? READY_MS })
    }
    for (let attempt = 1; ; attempt++) {
      const port = await freePort()
      await server.configure?.(port, directory)
      await giveTo(user.owner, directory)
      try {
        await launch(port)
        return { port, logFile, kill: () => end('SIGKILL'), start: () => launch(port), stop }
      } catch (error) {
        // It ends by itself if another program has taken the port in the meantime.
        if (running?.ending() === undefined || attempt === 5) throw error
      }
    }
  } catch (error) {
    await stop()
    throw error
  }
}

export interface Starting {
  readonly name: string
  readonly server: GuardedProcess
  readonly logFile: string
  readonly readyMs: number
}

/** Asks until there is an answer, which it returns. Rejects with the log of the server if it ends or takes too long. */
export async function untilReady<T>(ask: () => Promise<T | undefined>, starting: Starting): Promise<T> {
  const { name, server, logFile, readyMs } = starting
  const failed = async (reason: string): Promise<Error> =>
    new Error(`${name} ${reason}\n${await readFile(logFile, 'utf8').catch(() => '')}`)
  for (const deadline = performance.now() + readyMs; performance.now() < deadline;) {
    const ended = server.ending()
    if (ended !== undefined) throw await failed(`did not start: ${ended}`)
    const answer = await ask()
    if (answer !== undefined) return answer
    await delay(LOOK_EVERY_MS)
  }
  throw await failed('does not answer')
}
