import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { isAlive, processesWorkingIn } from '../../tools/server/processes.ts'

const main = nodeArguments(new URL('../main.ts', import.meta.url))

/** Known only to us and, by inheritance, to every process that a desk starts. */
const MARK = 'LOCKSTEP_DESK_TEST'

/** A desk in a process of its own, with all it says. */
export class DeskProcess {
  readonly mark: string
  readonly #child: ChildProcess
  readonly #closed: Promise<unknown>
  #said = ''

  constructor(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.mark = `${process.pid}-${Math.random().toString(36).slice(2)}`
    // Not through the tsx command, which would be a process between us and the program.
    this.#child = spawn(process.execPath, [...main, ...args], {
      env: { ...process.env, DATABASE_URL: '', ...env, [MARK]: this.mark },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#closed = once(this.#child, 'close')
    this.#child.stdout?.on('data', (chunk: Buffer) => (this.#said += chunk.toString()))
    this.#child.stderr?.on('data', (chunk: Buffer) => (this.#said += chunk.toString()))
  }

  get said(): string {
    return this.#said
  }

  kill(name: NodeJS.Signals): void {
    this.#child.kill(name)
  }

  /** Resolves as soon as it has said this. */
  async hears(text: string): Promise<void> {
    while (!this.#said.includes(text)) {
      if (this.#child.exitCode !== null) throw new Error(`it ended without ${JSON.stringify(text)}:\n${this.#said}`)
      await Promise.race([once(this.#child.stdout ?? this.#child, 'data'), this.#closed])
    }
  }

  /** Its exit code, or the signal that ended it. */
  async ended(): Promise<number | NodeJS.Signals | null> {
    await this.#closed
    return this.#child.exitCode ?? this.#child.signalCode
  }
}

/**
 * Every living process that this desk has started, down to the last. PostgreSQL writes its title over its environment, so its
 * processes are known by where they work. Only Linux can be asked.
 */
export function processesOf(desk: DeskProcess, dataDir: string): number[] {
  if (process.platform !== 'linux') return []
  const marked = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => environmentOf(pid).includes(`${MARK}=${desk.mark}`))
  return [...new Set([...marked, ...processesWorkingIn(dataDir)])].filter(isAlive)
}

function environmentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1')
  } catch {
    return ''
  }
}
