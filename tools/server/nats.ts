import { once } from 'node:events'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { startGuard } from './guard.ts'
import { type GuardedProcess, spawnGuarded } from './guardedProcess.ts'
import { giveTo, unprivileged } from './unprivileged.ts'

/** A NATS server of our own with JetStream, on 127.0.0.1. */
export interface NatsServer {
  readonly port: number
  /** SIGKILL. Comes back when it is gone. */
  kill(): Promise<void>
  /** Starts it again on the same port, with what it wrote. */
  start(): Promise<void>
  stop(): Promise<void>
}

const READY_MS = 10_000

export function natsAvailable(): boolean {
  return findProgram('nats-server') !== undefined
}

export async function startNats(): Promise<NatsServer> {
  const program = findProgram('nats-server')
  if (program === undefined) throw new Error('nats-server is not installed: see tools/prepare.ts')
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-nats-'))
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
  try {
    const user = await unprivileged([dirname(directory), program])
    await giveTo(user.owner, directory)
    const port = await freePort()
    const args = ['-a', '127.0.0.1', '-p', String(port), '-js', '-sd', directory]
    const start = async (): Promise<void> => {
      running = spawnGuarded(program, args, { user, guard, logFile: join(directory, 'nats.log') })
      await answers(port, running.ending)
    }
    await start()
    return {
      port,
      kill,
      start,
      async stop() {
        await kill()
        guard.dismiss()
        await rm(directory, { recursive: true, force: true })
      },
    }
  } catch (error) {
    await kill()
    guard.dismiss()
    await rm(directory, { recursive: true, force: true })
    throw error
  }
}

/** It has read its files before it listens, and greets with a line of its own. */
async function answers(port: number, ending: () => string | undefined): Promise<void> {
  for (const deadline = performance.now() + READY_MS; performance.now() < deadline;) {
    const ended = ending()
    if (ended !== undefined) throw new Error(`nats-server did not start: ${ended}`)
    const reached = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1')
      socket.once('error', () => resolve(false))
      socket.once('close', () => resolve(false))
      socket.once('data', (data) => {
        resolve(data.toString().startsWith('INFO'))
        socket.destroy()
      })
    })
    if (reached) return
    await delay(15)
  }
  throw new Error('nats-server does not answer')
}
