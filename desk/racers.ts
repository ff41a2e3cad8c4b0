import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { WayName } from './ways.ts'

/** What a racer is told. */
export interface Order {
  readonly way: WayName
  readonly increments: number
}

/** What a racer has done so far. */
export interface Tally {
  /** Increments whose COMMIT the server confirmed. */
  readonly confirmed: number
  /** Increments that ended with 40001. */
  readonly failed: number
}

export type Report =
  | { readonly kind: 'ready' }
  | ({ readonly kind: 'progress' } & Tally)
  | ({ readonly kind: 'finished' } & Tally)
  | { readonly kind: 'broken'; readonly reason: string }

const program = fileURLToPath(new URL('racer.ts', import.meta.url))

/** Two processes that race each other on command. */
export class Racers {
  readonly #children: readonly ChildProcess[]

  private constructor(children: readonly ChildProcess[]) {
    this.#children = children
  }

  /** Resolves when both are at the start. */
  static async start(url: string, signal: AbortSignal): Promise<Racers> {
    const racers = new Racers(
      [1, 2].map((number) =>
        fork(program, [String(number)], {
          // In a session of its own: Ctrl-C is for us, and we end the racers before the server they use.
          detached: true,
          env: { ...process.env, LOCKSTEP_DESK_URL: url },
        }),
      ),
    )
    try {
      await Promise.all(racers.#children.map((child) => nextReport(child, signal, 'ready')))
      return racers
    } catch (error) {
      await racers.stop()
      throw error
    }
  }

  get pids(): number[] {
    return this.#children.map((child) => child.pid ?? 0)
  }

  /** One round: both begin at once. Resolves with what each has done. */
  race(order: Order, signal: AbortSignal, onProgress: (index: number, tally: Tally) => void): Promise<Tally[]> {
    const finishes = this.#children.map(async (child, index) => {
      const listen = (report: Report): void => {
        if (report.kind === 'progress' || report.kind === 'finished') onProgress(index, report)
      }
      child.on('message', listen)
      try {
        const finished = await nextReport(child, signal, 'finished')
        return { confirmed: finished.confirmed, failed: finished.failed }
      } finally {
        child.off('message', listen)
      }
    })
    for (const child of this.#children) child.send(order)
    return Promise.all(finishes)
  }

  /** They own nothing that would need a goodbye. */
  async stop(): Promise<void> {
    await Promise.all(
      this.#children.map(async (child) => {
        if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
        const gone = once(child, 'exit')
        child.kill('SIGKILL')
        await gone
      }),
    )
  }
}

/** The racer's next report of this kind; its failure, its end, and our own end are errors. */
function nextReport<Kind extends Report['kind']>(
  child: ChildProcess,
  signal: AbortSignal,
  kind: Kind,
): Promise<Extract<Report, { kind: Kind }>> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void): void => {
      child.off('message', onMessage)
      child.off('exit', onExit)
      child.off('error', onError)
      signal.removeEventListener('abort', onAbort)
      act()
    }
    const onMessage = (report: Report): void => {
      if (report.kind === kind) settle(() => resolve(report as Extract<Report, { kind: Kind }>))
      else if (report.kind === 'broken') settle(() => reject(new Error(`A racer failed: ${report.reason}`)))
    }
    const onExit = (code: number | null, name: string | null): void =>
      settle(() => reject(new Error(`A racer ended with ${code ?? name}.`)))
    const onError = (error: Error): void => settle(() => reject(error))
    const onAbort = (): void => settle(() => reject(signal.reason as Error))
    child.on('message', onMessage)
    child.on('exit', onExit)
    child.on('error', onError)
    signal.addEventListener('abort', onAbort)
    if (signal.aborted) onAbort()
  })
}
