import { constants } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import type { Screen } from './screen.ts'

/**
 * One Ctrl-C can arrive more than once: from the terminal, and again from npm and tsx, which pass it on. Only one that comes
 * later than this is a second request.
 */
const ECHO_MS = 2_000

/** The process is asked to end. */
export class Stopping {
  readonly #controller = new AbortController()
  readonly #screen: Screen
  #since = 0
  #name: NodeJS.Signals = 'SIGINT'
  readonly requested: Promise<void>

  constructor(screen: Screen) {
    this.#screen = screen
    this.requested = new Promise((resolve) => this.signal.addEventListener('abort', () => resolve()))
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => this.#stop(name))
    // Nothing reads the output any more (a closed terminal, `| head`): there is no point in continuing.
    process.stdout.on('error', () => this.#stop('SIGHUP'))
    process.stderr.on('error', () => this.#stop('SIGHUP'))
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get exitCode(): number {
    return 128 + constants.signals[this.#name]
  }

  #stop(name: NodeJS.Signals): void {
    if (!this.signal.aborted) {
      this.#name = name
      this.#since = performance.now()
      this.#screen.say('Stopping …')
      this.#controller.abort()
      return
    }
    if (name !== 'SIGHUP' && performance.now() - this.#since > ECHO_MS) void this.#leave()
  }

  /** The second wish: the guard does the rest, we do not wait for it. */
  async #leave(): Promise<void> {
    this.#screen.say('Leaving now; the server is stopped behind us.')
    await delay(10)
    process.exit(this.exitCode)
  }
}
