import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { freePort } from '../server/freePort.ts'

/** How an application is started. */
export interface App {
  readonly program: string
  readonly args: (port: number) => readonly string[]
  readonly cwd: string
  /** Whether its page has the form of a server action. */
  readonly hasForm?: boolean
}

/** A process that does not answer by then has failed. */
const LONGEST_START_MS = 120_000

/** A process of an application on a port of its own, which can be killed and started again. */
export class AppProcess {
  readonly #app: App
  readonly #databaseUrl: string
  readonly #port: number
  #child: ChildProcess | undefined
  #output = ''

  private constructor(app: App, databaseUrl: string, port: number) {
    this.#app = app
    this.#databaseUrl = databaseUrl
    this.#port = port
  }

  static async start(app: App, databaseUrl: string): Promise<AppProcess> {
    const made = new AppProcess(app, databaseUrl, await freePort())
    await made.#start()
    return made
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  /** What it has written, to find out why it failed. */
  get output(): string {
    return this.#output
  }

  async killAndRestart(): Promise<void> {
    await this.#end('SIGKILL')
    await this.#start()
  }

  /** In order. Gives what is wrong with how it ended. NestJS and Next.js end by the signal itself, when everything is closed. */
  async stop(): Promise<string | undefined> {
    await this.#end('SIGTERM')
    const { exitCode = 0, signalCode = null } = this.#child ?? {}
    if (exitCode === 0 || exitCode === 143 || signalCode === 'SIGTERM') return undefined
    return `a process that was stopped exited with ${signalCode ?? exitCode}\n${this.#output}`
  }

  async #start(): Promise<void> {
    const { program, args, cwd } = this.#app
    const child = spawn(program, args(this.#port), {
      cwd,
      env: {
        ...process.env,
        NODE_ENV: 'production',
        NEXT_TELEMETRY_DISABLED: '1',
        PORT: String(this.#port),
        DATABASE_URL: this.#databaseUrl,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#child = child
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (this.#output = (this.#output + chunk.toString()).slice(-20_000)))
    }
    const deadline = performance.now() + LONGEST_START_MS
    // Any answer will do: there is nothing at this path.
    while (!(await fetch(`${this.url}/up`).then(drained, () => false))) {
      if (child.exitCode !== null || performance.now() > deadline) {
        throw new Error(`The application did not start.\n${this.#output}`)
      }
      await delay(50)
    }
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
  }
}

async function drained(response: Response): Promise<boolean> {
  await response.arrayBuffer()
  return true
}
