import { spawnSync } from 'node:child_process'
import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { findProgram } from './findProgram.ts'
import { startGuard } from './guard.ts'
import { spawnGuarded } from './guardedProcess.ts'
import { waitUntilGone } from './processes.ts'
import { type Proxy, startProxy } from 'pg-lockstep/testing'
import { untilReady } from './restartableServer.ts'
import { giveTo, unprivileged } from './unprivileged.ts'

/** librdkafka's mock cluster: it speaks Kafka's protocol and keeps everything in memory. */
export interface KafkaServer {
  /** The only address whose connections can be cut: a proxy in front of the first broker. */
  readonly address: string
  /** The brokers themselves. */
  readonly brokers: readonly string[]
  /** As near as it goes: every connection is cut and no new one is taken. What the brokers have, they keep. */
  kill(): Promise<void>
  start(): Promise<void>
  stop(): Promise<void>
}

const READY_MS = 10_000

export function kafkaAvailable(): boolean {
  return findProgram('kcat') !== undefined
}

export async function startKafka(options: { readonly brokers?: number } = {}): Promise<KafkaServer> {
  const program = findProgram('kcat')
  if (program === undefined) throw new Error('kcat is not installed: see tools/prepare.ts')
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-kafka-'))
  const guard = startGuard()
  guard.removeAfterwards(directory)
  let gate: Proxy | undefined
  try {
    // kcat serves as long as it has something to read: a pipe that it holds open itself, and no process writes to.
    const pipe = join(directory, 'input')
    if (spawnSync('mkfifo', [pipe]).status !== 0) throw new Error('mkfifo failed')
    const user = await unprivileged([dirname(directory), program])
    await giveTo(user.owner, directory)
    const logFile = join(directory, 'kafka.log')
    const mock = ['-b', 'none:1', '-X', `test.mock.num.brokers=${options.brokers ?? 1}`, '-P', '-t', 'unused']
    const args = ['-c', 'exec 0<>"$0"; exec "$@"', pipe, program, ...mock]
    const server = spawnGuarded('/bin/sh', args, { user, guard, logFile })
    // It takes ports of its own choice, and writes them to its log.
    const addresses = async (): Promise<string[] | undefined> =>
      /replaced with (\S+)$/m.exec(await readFile(logFile, 'utf8').catch(() => ''))?.[1]?.split(',')
    const brokers = await untilReady(addresses, { name: 'kcat', server, logFile, readyMs: READY_MS })
    const [host, port] = (brokers[0] as string).split(':') as [string, string]
    gate = await startProxy({ targetHost: host, targetPort: Number(port) })
    const way = gate
    return {
      address: `127.0.0.1:${way.port}`,
      brokers,
      async kill() {
        way.refuse(true)
        way.cutAll()
      },
      async start() {
        way.refuse(false)
      },
      async stop() {
        await way.close()
        server.child.kill('SIGKILL')
        if (server.child.pid !== undefined) await waitUntilGone([server.child.pid], READY_MS)
        guard.dismiss()
        await rm(directory, { recursive: true, force: true })
      },
    }
  } catch (error) {
    await gate?.close()
    guard.dismiss()
    await rm(directory, { recursive: true, force: true })
    throw error
  }
}
