import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../../tools/server/freePort.ts'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { sendOnce } from './sendOnce.ts'

/** A desk to load. */
export interface Target {
  readonly origin: string
  readonly databaseUrl: string
  /** Whether its processes may be killed and its sessions ended. */
  readonly ours: boolean
  /** The last that it has said. */
  readonly said: readonly string[]
  close(): Promise<void>
}

const main = nodeArguments(new URL('../main.ts', import.meta.url))
const START_MS = 60_000
const STOP_MS = 25_000
const KEPT_LINES = 200

/** A desk of our own, on a database of its own that is gone afterwards. */
export async function startOwnDesk(processes: number): Promise<Target> {
  // What the console costs is read from it.
  const settings = { shared_preload_libraries: 'pg_stat_statements' }
  const server = await startPostgres({ durable: true, settings })
  try {
    return await startDesk(processes, server.url(), () => server.stop())
  } catch (error) {
    await server.stop()
    throw error
  }
}

async function startDesk(processes: number, databaseUrl: string, afterwards: () => Promise<void>): Promise<Target> {
  const port = await freePort()
  const origin = `http://127.0.0.1:${port}`
  const args = ['--processes', String(processes), '--port', String(port), '--no-traffic', '--quiet']
  const desk = spawn(process.execPath, [...main, ...args], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'pipe'],
    // Ctrl-C is for us: we stop it when our requests have ended.
    detached: true,
  })
  const gone = once(desk, 'close')
  const said: string[] = []
  const hear = (chunk: Buffer): void => {
    said.push(...chunk.toString().split('\n').filter(Boolean))
    said.splice(0, said.length - KEPT_LINES)
  }
  desk.stdout.on('data', hear)
  desk.stderr.on('data', hear)
  // However this program ends, the desk does not stay.
  const kill = (): boolean => desk.kill('SIGKILL')
  process.once('exit', kill)
  const stop = async (): Promise<void> => {
    desk.kill('SIGTERM')
    const late = setTimeout(kill, STOP_MS)
    await gone
    clearTimeout(late)
    process.removeListener('exit', kill)
  }
  try {
    await untilAllAnswer(origin, processes, () => desk.exitCode !== null)
  } catch (error) {
    await stop()
    throw new Error(`${(error as Error).message}\n${said.join('\n')}`, { cause: error })
  }
  return {
    origin,
    databaseUrl,
    ours: true,
    said,
    async close() {
      await stop()
      await afterwards()
    },
  }
}

async function untilAllAnswer(origin: string, processes: number, ended: () => boolean): Promise<void> {
  const deadline = performance.now() + START_MS
  while ((await processIds(origin, processes)).length < processes) {
    if (ended()) throw new Error('The desk has ended instead of starting.')
    if (performance.now() > deadline) throw new Error(`The desk does not answer after ${START_MS / 1000} s.`)
    await sleep(100)
  }
}

/** The processes that answer. Each question comes on a connection of its own, and the next process gets it. */
export async function processIds(origin: string, expected: number): Promise<number[]> {
  const answers = await Promise.all(
    Array.from({ length: 2 * expected }, () => sendOnce({ method: 'GET', url: `${origin}/health`, timeoutMs: 2000 })),
  )
  const ids = answers.flatMap((answer) => ('body' in answer && answer.status === 200 ? Number(answer.body['pid']) : []))
  return [...new Set(ids)]
}
