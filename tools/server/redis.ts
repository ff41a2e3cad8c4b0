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

export interface RedisOptions {
  /** Whether it writes all to disk before it answers, and has it again after a restart. Default: it keeps nothing. */
  readonly appendOnly?: boolean
  /** More arguments, as on the command line. */
  readonly args?: readonly string[]
}

/** A Redis of our own, on 127.0.0.1. */
export interface RedisServer {
  readonly port: number
  /** SIGKILL. Comes back when it is gone. */
  kill(): Promise<void>
  /** Starts it again on the same port, with what it wrote. */
  start(): Promise<void>
  stop(): Promise<void>
}

const READY_MS = 10_000

export function redisAvailable(): boolean {
  return findProgram('redis-server') !== undefined
}

export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const program = findProgram('redis-server')
  if (program === undefined) throw new Error('redis-server is not installed: see tools/prepare.ts')
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-redis-'))
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
    const keeping = options.appendOnly === true ? ['--appendonly', 'yes', '--appendfsync', 'always'] : []
    const own = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', directory, ...keeping]
    const start = async (): Promise<void> => {
      running = spawnGuarded(program, [...own, ...(options.args ?? [])], {
        user,
        guard,
        logFile: join(directory, 'redis.log'),
      })
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

/** It takes connections while it still reads its file: it is ready when it says so. */
async function answers(port: number, ending: () => string | undefined): Promise<void> {
  for (const deadline = performance.now() + READY_MS; performance.now() < deadline;) {
    const ended = ending()
    if (ended !== undefined) throw new Error(`redis-server did not start: ${ended}`)
    const reached = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'))
      socket.once('error', () => resolve(false))
      socket.once('close', () => resolve(false))
      socket.once('data', (data) => {
        resolve(data.toString().startsWith('+PONG'))
        socket.destroy()
      })
    })
    if (reached) return
    await delay(20)
  }
  throw new Error('redis-server does not answer')
}
