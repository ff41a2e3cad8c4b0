import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { startProcess } from '../../proofs/faults/killableProcess.ts'
import { cardTexts } from '../../proofs/show/code.ts'
import type { FromStage, Press, ToStage } from '../../proofs/show/messages.ts'
import type { CardName, CardState, CardText, Frame } from '../../proofs/show/state.ts'

const STAGE = new URL('../../proofs/show/main.ts', import.meta.url)
/** Without a viewer the stage ends after this time. */
const EMPTY_MS = 60_000
/** With a viewer, but nothing pressed. The next press starts it again. */
const UNUSED_MS = 600_000
const CLOSE_MS = 15_000

export interface ShowOptions {
  /** How long a hammer lasts that says nothing else. Default: 8. */
  readonly seconds?: number
  /** How long a freeze lasts. Default: 5,000. */
  readonly freezeMs?: number
  /** The stage ends so long after the last viewer has left. Default: a minute. */
  readonly emptyMs?: number
}

/** A viewer that takes a frame. */
export type Viewer = (frame: Frame) => void

/**
 * The race of the start page, as the service has it. The race itself is run by a process of its own, with a PostgreSQL of its own and three
 * workers. That process runs while a page is open or after a button was pressed; otherwise nothing runs.
 */
export class Show {
  readonly texts: readonly CardText[]
  readonly #say: (line: string) => void
  readonly #options: ShowOptions
  readonly #viewers = new Set<Viewer>()
  readonly #onClose = new Set<() => void>()
  readonly #states = new Map<CardName, CardState>()
  #stage: ChildProcess | undefined
  /** Stages that were asked to end. Another one can have been started since. */
  readonly #ending = new Set<Promise<void>>()
  #unused: NodeJS.Timeout | undefined
  #closed = false

  private constructor(texts: readonly CardText[], say: (line: string) => void, options: ShowOptions) {
    this.texts = texts
    this.#options = options
    this.#say = say
  }

  static async prepare(say: (line: string) => void, options: ShowOptions = {}): Promise<Show> {
    return new Show(await cardTexts(), say, options)
  }

  /** The newest state of each card that has run. */
  get states(): readonly CardState[] {
    return [...this.#states.values()]
  }

  /** Whether the process that runs the race is there. */
  get staged(): boolean {
    return this.#stage !== undefined
  }

  /** Shows everything now, and each card whenever it changes. Returns how to stop. */
  watch(viewer: Viewer): () => void {
    this.#viewers.add(viewer)
    viewer({ cards: this.states })
    this.#begin()
    return () => {
      this.#viewers.delete(viewer)
      this.#countDown()
    }
  }

  /** Called once, when the service ends. Returns how not to be called. */
  onClose(closed: () => void): () => void {
    this.#onClose.add(closed)
    return () => this.#onClose.delete(closed)
  }

  press(press: Press): void {
    this.#begin()
    const { seconds, freezeMs } = this.#options
    this.#send({
      press: { ...(seconds !== undefined && { seconds }), ...(freezeMs !== undefined && { freezeMs }), ...press },
    })
    this.#countDown()
  }

  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#unused)
    for (const closed of this.#onClose) closed()
    this.#end()
    await Promise.all(this.#ending)
  }

  /** The stage is started for the first that needs it. */
  #begin(): void {
    if (this.#closed || this.#stage !== undefined) return
    const { child } = startProcess(STAGE, [])
    this.#stage = child
    child.on('message', (message: FromStage) => {
      if ('state' in message) this.#show(message.state)
    })
    child.on('error', (error) => this.#say(`The race of the start page cannot be started: ${error.message}`))
    child.once('exit', (code, signal) => {
      if (this.#stage !== child) return
      this.#stage = undefined
      if (this.#closed) return
      this.#say(`The race of the start page ended with ${signal ?? code}. The next press starts it again.`)
      for (const state of this.states) if (state.phase !== 'idle') this.#show({ ...state, phase: 'idle', striking: [] })
    })
    this.#countDown()
  }

  #show(state: CardState): void {
    this.#states.set(state.card, state)
    for (const viewer of this.#viewers) viewer({ cards: [state] })
    if (state.phase !== 'idle') this.#countDown()
  }

  /** Each press, each frame of a run and each viewer that leaves sets it back. */
  #countDown(): void {
    clearTimeout(this.#unused)
    if (this.#closed || this.#stage === undefined) return
    this.#unused = setTimeout(
      () => this.#end(),
      this.#viewers.size === 0 ? (this.#options.emptyMs ?? EMPTY_MS) : UNUSED_MS,
    ).unref()
  }

  #send(message: ToStage): void {
    if (this.#stage?.connected === true) this.#stage.send(message, () => undefined)
  }

  #end(): void {
    const ending = this.#endStage()
    this.#ending.add(ending)
    void ending.finally(() => this.#ending.delete(ending))
  }

  async #endStage(): Promise<void> {
    const child = this.#stage
    if (child === undefined) return
    const exited = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : Promise.resolve()
    this.#send({ close: true })
    this.#stage = undefined
    const late = setTimeout(() => child.kill('SIGKILL'), CLOSE_MS)
    await exited
    clearTimeout(late)
  }
}
