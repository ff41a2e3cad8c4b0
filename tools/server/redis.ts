import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { startGuard } from './guard.ts'
import { spawnGuarded } from './guardedProcess.ts'
import { waitUntilGone } from './processes.ts'
import { giveTo, unprivileged } from './unprivileged.ts'

/** A Redis of our own, on 127.0.0.1, that keeps nothing on disk. */
export interface RedisServer {
  readonly port: number
  stop(): Promise<void>
}

const READY_MS = 10_000

export async function startRedis(): Promise<RedisServer> {
  const program = findProgram('redis-server')
  if (program === undefined) throw new Error('redis-server is not installed: see tools/prepare.ts')
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-redis-'))
  const guard = startGuard()
  guard.removeAfterwards(directory)
  try {
    const user = await unprivileged([dirname(directory), program])
    await giveTo(user.owner, directory)
    const port = await freePort()
    const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', directory]
    const { child, ending } = spawnGuarded(program, args, { user, guard, logFile: join(directory, 'redis.log') })
    await answers(port, ending)
    return {
      port,
      async stop() {
        child.kill('SIGKILL')
        if (child.pid !== undefined) await waitUntilGone([child.pid], READY_MS)
        guard.dismiss()
        await rm(directory, { recursive: true, force: true })
      },
    }
  } catch (error) {
    guard.dismiss()
    await rm(directory, { recursive: true, force: true })
    throw error
  }
}

async function answers(port: number, ending: () => string | undefined): Promise<void> {
  for (const deadline = performance.now() + READY_MS; performance.now() < deadline;) {
    const ended = ending()
    if (ended !== undefined) throw new Error(`redis-server did not start: ${ended}`)
    const reached = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true))
      socket.on('error', () => resolve(false))
      socket.on('connect', () => socket.destroy())
    })
    if (reached) return
    await delay(20)
  }
  throw new Error('redis-server does not answer')
}
