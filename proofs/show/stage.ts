import { setTimeout as sleep } from 'node:timers/promises'
import { type Laboratory, openLaboratory } from '../laboratory.ts'
import { type WorkerListener, WorkerProcess } from '../workerProcess.ts'
import { cardOf, cards } from './cards.ts'
import { Run } from './run.ts'
import type { CardName, CardState, FaultName } from './state.ts'

/** Ten frames a second. */
const FRAME_MS = 100
const POOL_SIZE = 10
const HAMMER_MS = 8000
/** For a fault that is pressed while nothing runs. */
const USUAL_CALLERS = 100

/** Two go straight to the server, and one through the proxy, whose network can be cut. */
const ROUTES = ['direct', 'proxy', 'direct'] as const

/**
 * Where the race is run: a PostgreSQL of its own and three worker processes. One card runs at a time; who presses on another ends the first.
 */
export class Stage implements WorkerListener {
  readonly #laboratory: Laboratory
  readonly #workers: readonly WorkerProcess[]
  readonly #show: (state: CardState) => void
  #run: Run | undefined
  #next: Run | undefined
  #playing: Promise<void> | undefined
  #closing = false

  private constructor(laboratory: Laboratory, show: (state: CardState) => void) {
    this.#laboratory = laboratory
    this.#show = show
    const { url, proxiedUrl } = laboratory
    this.#workers = ROUTES.map((way, index) => {
      const reached = way === 'proxy' ? proxiedUrl : url
      return new WorkerProcess(
        `w${index + 1}`,
        way,
        { driver: 'pg', url: reached, directUrl: reached, poolSize: POOL_SIZE },
        this,
      )
    })
  }

  /** Resolves when the workers are there. */
  static async open(show: (state: CardState) => void): Promise<Stage> {
    const laboratory = await openLaboratory(
      cards.map(({ scenario }) => scenario),
      {
        pooler: false,
        settings: {
          // Deadlocks are found ten times sooner than by default: otherwise the naive transfers hardly move.
          deadlock_timeout: '100ms',
          // The disk of a laptop is no part of the race. A crash of the server loses nothing by it; one of the machine would.
          fsync: 'off',
        },
      },
    )
    const stage = new Stage(laboratory, show)
    await Promise.all(stage.#workers.map(({ ready }) => ready))
    return stage
  }

  entry: WorkerListener['entry'] = (entry) => this.#run?.entry(entry)
  answer: WorkerListener['answer'] = (round, service, question) => this.#run?.answer(round, service, question)
  lost: WorkerListener['lost'] = (reason) => {
    this.#run?.trouble(reason.message)
    throw reason
  }

  /** So many callers at once, on both sides. Resolves when they are to begin; what runs now ends first. */
  hammer(name: CardName, callers: number, forMs = HAMMER_MS): Run {
    const run = new Run(this.#laboratory, this.#workers, cardOf(name), callers, forMs)
    this.#next = run
    this.#run?.end()
    this.#playing ??= this.#play().finally(() => (this.#playing = undefined))
    return run
  }

  /** Strikes the run of this card; if there is none, begins one. */
  strike(
    name: CardName,
    fault: FaultName,
    { forMs, freezeMs }: { readonly forMs?: number | undefined; readonly freezeMs?: number | undefined } = {},
  ): Promise<void> {
    const current = this.#next ?? this.#run
    const isOn = current?.card.card === name && (current.phase === 'starting' || current.phase === 'running')
    return (isOn ? current : this.hammer(name, USUAL_CALLERS, forMs)).strike(fault, freezeMs)
  }

  async #play(): Promise<void> {
    for (let run = this.#next; run !== undefined && !this.#closing; run = this.#next) {
      this.#next = undefined
      this.#run = run
      const frames = setInterval(() => this.#show(run.state()), FRAME_MS)
      try {
        await run.play()
      } finally {
        clearInterval(frames)
        this.#show(run.state())
      }
    }
  }

  async close(): Promise<void> {
    this.#closing = true
    this.#run?.end()
    // What it leaves ends with the workers and the server.
    await Promise.race([this.#playing, sleep(3000)])
    await Promise.all(this.#workers.map((worker) => worker.end()))
    await this.#laboratory.close()
  }
}
