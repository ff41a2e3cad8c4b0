import { once } from 'node:events'
import { type KillableProcess, startProcess } from '../../faults/killableProcess.ts'
import type { Lab, Route } from '../lab.ts'
import type { OrmNews, OrmOrder } from '../processes/ormProcess.ts'

/** What the processes have reported of one ORM. */
export class Reported {
  readonly committed: string[] = []
  readonly errors: string[] = []
}

/** Then something is wrong that waiting does not fix. */
const TOO_MANY = 100

/** One process that plays an ORM, and a new one in its place after a kill. */
export class Player {
  readonly #lab: Lab
  readonly #route: Route
  #process: KillableProcess | undefined
  #reported = new Reported()
  #since = 0
  #wake: (() => void) | undefined
  #ended = false

  constructor(lab: Lab, route: Route) {
    this.#lab = lab
    this.#route = route
  }

  async start(): Promise<void> {
    const file = new URL('../processes/ormProcess.ts', import.meta.url)
    const started = startProcess(file, [this.#lab.url(this.#route), `orm ${this.#route}`])
    await once(started.child, 'message')
    started.child.on('message', (news: OrmNews) => this.#hear(news))
    this.#process = started
  }

  #hear(news: OrmNews): void {
    if ('committed' in news) {
      this.#reported.committed.push(news.committed)
      this.#since++
    } else if ('error' in news) this.#reported.errors.push(news.error)
    else this.#ended = true
    this.#wake?.()
  }

  play(order: OrmOrder, reported: Reported): void {
    this.#reported = reported
    this.#since = 0
    this.#ended = false
    this.#process?.child.send(order)
  }

  /** Resolves when it has committed so many since it began to play, or when it fails again and again. */
  async until(count: number): Promise<void> {
    while (this.#since < count && this.#reported.errors.length < TOO_MANY)
      await new Promise<void>((resolve) => (this.#wake = resolve))
  }

  async stop(): Promise<void> {
    this.#process?.child.send('stop' satisfies OrmOrder)
    await this.ended()
  }

  async ended(): Promise<void> {
    while (!this.#ended) await new Promise<void>((resolve) => (this.#wake = resolve))
  }

  async kill(): Promise<void> {
    await this.#process?.kill()
    this.#process = undefined
  }
}
