import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { freePort } from '../server/freePort.ts'
import type { Bundle } from './bundlers.ts'

const TOKEN = 'token-of-the-console'
/** A server that does not answer by then has failed. */
const LONGEST_START_MS = 120_000

/** What a bundled server answers. */
export interface Visited {
  /** What work() of the program returns. */
  readonly work: unknown
  /** The console: its page, the script of that page, and the version that its API reports. */
  readonly page: string
  readonly script: string
  readonly version: unknown
}

/** Starts the server, asks it for everything, and ends it. */
export async function visit(bundle: Bundle, databaseUrl: string, schema: string): Promise<Visited> {
  const port = await freePort()
  const server = spawn(bundle.program, bundle.args(port), {
    cwd: bundle.cwd,
    env: {
      ...process.env,
      NODE_ENV: 'production',
      NEXT_TELEMETRY_DISABLED: '1',
      PORT: String(port),
      DATABASE_URL: databaseUrl,
      SCHEMA: schema,
      TOKEN,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [server.stdout, server.stderr])
    stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = once(server, 'close')
  const isOver = (): boolean => server.exitCode !== null || server.signalCode !== null
  const ask = async (path: string, headers: Record<string, string> = {}): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers })
    const text = await response.text()
    if (response.status !== 200) throw new Error(`${path} answered ${response.status}: ${text}`)
    return text
  }
  try {
    await untilItAnswers(port, isOver)
    const work = JSON.parse(await ask('/check')) as unknown
    const page = await ask('/console')
    const script = await ask(`/console/${/src="\.\/([^"]+\.js)"/.exec(page)?.[1]}`)
    const session = JSON.parse(await ask('/console/api/session', { authorization: `Bearer ${TOKEN}` })) as object
    return { work, page, script, version: (session as { version?: unknown }).version }
  } catch (error) {
    throw new Error(`${String(error)}\n${output}`, { cause: error })
  } finally {
    server.kill()
    await ended
  }
}

async function untilItAnswers(port: number, isOver: () => boolean): Promise<void> {
  const deadline = performance.now() + LONGEST_START_MS
  for (;;) {
    const answered = await fetch(`http://127.0.0.1:${port}/console/icon.svg`).then(
      async (response) => (await response.text()) !== undefined,
      () => false,
    )
    if (answered) return
    if (isOver()) throw new Error('The server ended.')
    if (performance.now() > deadline) throw new Error('The server does not answer.')
    await delay(50)
  }
}
