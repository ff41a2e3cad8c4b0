import { once } from 'node:events'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { startGuard } from './guard.ts'
import { type GuardedProcess, spawnGuarded } from './guardedProcess.ts'
import { giveTo, unprivileged } from './unprivileged.ts'

/** A server of our own, on 127.0.0.1, that can be killed and started again. */
export interface RestartableServer {
  readonly port: number
  /** SIGKILL. Comes back when it is gone. */
  kill(): Promise<void>
  /** Starts it again on the same port, with what it wrote. */
  start(): Promise<void>
  stop(): Promise<void>
}

export interface ServerProgram {
  readonly name: string
  readonly args: (port: number, directory: string) => readonly string[]
  /** What it says when it is ready, on a connection; and what it has to be asked for that. */
  readonly greeting: string
  readonly question?: string
}

const READY_MS = 10_000
const LOOK_EVERY_MS = 15

/** Starts a program that is one process and listens on one port, in a directory of its own. */
export async function startRestartable(server: ServerProgram): Promise<RestartableServer> {
  const program = findProgram(server.name)
  if (program === undefined) throw new Error(`${server.name} is not installed: see tools/prepare.ts`)
  const directory = await mkdtemp(join(await realpath(tmpdir()), `lockstep-${server.name}-`))
  const guard = startGuard()
  guard.removeAfterwards(directory)
  let running: GuardedProcess | undefined
  const kill = async (): Promise<void> => {
    if (running === undefined || running.ending() !== undefined) return
    // Its exit makes the guard forget it: that must not hit the next one.
    const gone = once(running.child, 'exit')
    running.child.kill('SIGKILL')
    await gone
  }
  const stop = async (): Promise<void> => {
    await kill()
    guard.dismiss()
    await rm(directory, { recursive: true, force: true })
  }
  try {
    const user = await unprivileged([dirname(directory), program])
    await giveTo(user.owner, directory)
    const port = await freePort()
    const args = server.args(port, directory)
    const start = async (): Promise<void> => {
      running = spawnGuarded(program, args, { user, guard, logFile: join(directory, 'server.log') })
      await answers(server, port, running.ending)
    }
    await start()
    return { port, kill, start, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** A server may take connections before it has read its files: it is ready when it says so. */
async function answers(server: ServerProgram, port: number, ending: () => string | undefined): Promise<void> {
  for (const deadline = performance.now() + READY_MS; performance.now() < deadline;) {
    const ended = ending()
    if (ended !== undefined) throw new Error(`${server.name} did not start: ${ended}`)
    const reached = await new Promise<boolean>((resolve) => {
      const socket: Socket = connect(port, '127.0.0.1', () => {
        if (server.question !== undefined) socket.write(server.question)
      })
      socket.once('error', () => resolve(false))
      socket.once('close', () => resolve(false))
      socket.once('data', (data) => {
        resolve(data.toString().startsWith(server.greeting))
        socket.destroy()
      })
    })
    if (reached) return
    await delay(LOOK_EVERY_MS)
  }
  throw new Error(`${server.name} does not answer`)
}
