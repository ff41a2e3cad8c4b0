import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type ChannelModel, connect } from 'amqplib'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { startGuard } from './guard.ts'
import { type GuardedProcess, spawnGuarded } from './guardedProcess.ts'
import { waitUntilGone } from './processes.ts'
import { untilReady } from './restartableServer.ts'
import { giveTo, unprivileged } from './unprivileged.ts'

/** A RabbitMQ of our own, on 127.0.0.1, in a directory of its own, with a name server of its own. */
export interface RabbitServer {
  readonly port: number
  readonly url: string
  readonly logFile: string
  /** `kill -9`. */
  kill(): Promise<void>
  /** Starts it again on the same port, with what it had on disk. */
  start(): Promise<void>
  stop(): Promise<void>
}

export interface RabbitServerOptions {
  /** The largest message the server takes. Default: the server's. */
  readonly maxMessageBytes?: number
}

const READY_MS = 60_000
/** Debian's /usr/sbin/rabbitmq-server insists on its own user; what it calls does not. */
const SCRIPT = '/usr/lib/rabbitmq/bin/rabbitmq-server'

export function rabbitAvailable(): boolean {
  return existsSync(SCRIPT) && findProgram('epmd') !== undefined
}

export async function startRabbit(options: RabbitServerOptions = {}): Promise<RabbitServer> {
  const epmd = findProgram('epmd')
  const env = findProgram('env')
  if (!rabbitAvailable() || epmd === undefined || env === undefined)
    throw new Error('rabbitmq-server is not installed: see tools/prepare.ts')
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-rabbitmq-'))
  // One guard ends one process: the name server's removes the directory as well, for it is the last to go.
  const [guard, nameGuard] = [startGuard(), startGuard()]
  nameGuard.removeAfterwards(directory)
  const logFile = join(directory, 'rabbitmq.log')
  let names: GuardedProcess | undefined
  let running: GuardedProcess | undefined
  const end = async (each: GuardedProcess | undefined): Promise<void> => {
    each?.child.kill('SIGKILL')
    if (each?.child.pid !== undefined) await waitUntilGone([each.child.pid], READY_MS)
  }
  const stop = async (): Promise<void> => {
    await end(running)
    await end(names)
    guard.dismiss()
    nameGuard.dismiss()
    await rm(directory, { recursive: true, force: true, maxRetries: 5 })
  }
  try {
    const [port, distributionPort, namePort] = [await freePort(), await freePort(), await freePort()]
    const environment = environmentOf(directory, port, distributionPort, namePort)
    await mkdir(join(directory, 'home'))
    await writeFile(join(directory, 'plugins'), '[].\n')
    const limit = options.maxMessageBytes
    await writeFile(join(directory, 'rabbitmq.conf'), limit === undefined ? '' : `max_message_size = ${limit}\n`)
    const user = await unprivileged([dirname(directory), SCRIPT])
    await giveTo(user.owner, directory)
    const url = `amqp://guest:guest@127.0.0.1:${port}`
    names = spawnGuarded(epmd, ['-port', String(namePort), '-address', '127.0.0.1'], {
      user,
      guard: nameGuard,
      logFile: join(directory, 'epmd.log'),
    })
    const start = async (): Promise<void> => {
      const settings = Object.entries(environment).map(([name, value]) => `${name}=${value}`)
      running = spawnGuarded(env, [...settings, SCRIPT], { user, guard, logFile })
      const connection = (): Promise<ChannelModel | undefined> => connect(url).catch(() => undefined)
      const starting = { name: 'rabbitmq-server', server: running, logFile, readyMs: READY_MS }
      await (await untilReady(connection, starting)).close()
    }
    await start()
    return { port, url, logFile, start, kill: () => end(running), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

function environmentOf(
  directory: string,
  port: number,
  distributionPort: number,
  namePort: number,
): Record<string, string> {
  return {
    HOME: join(directory, 'home'),
    ERL_EPMD_PORT: String(namePort),
    ERL_EPMD_ADDRESS: '127.0.0.1',
    RABBITMQ_NODENAME: `lockstep${port}@localhost`,
    RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
    RABBITMQ_NODE_PORT: String(port),
    RABBITMQ_DIST_PORT: String(distributionPort),
    RABBITMQ_MNESIA_BASE: join(directory, 'data'),
    RABBITMQ_LOGS: '-',
    RABBITMQ_LOG_BASE: join(directory, 'log'),
    ERL_CRASH_DUMP: join(directory, 'crash'),
    RABBITMQ_CONFIG_FILE: join(directory, 'rabbitmq.conf'),
    RABBITMQ_ENABLED_PLUGINS_FILE: join(directory, 'plugins'),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS:
      '-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none',
    // Has the script become the server instead of waiting for it: so its process id is the server's.
    RUNNING_UNDER_SYSTEMD: 'true',
  }
}
