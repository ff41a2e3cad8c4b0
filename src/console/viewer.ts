import type { Tab } from './wire.ts'

const HELLO = new TextEncoder().encode('retry: 2000\n\n')
const HEARTBEAT = new TextEncoder().encode(': still here\n\n')

/** One event, as it goes over the wire. */
export function frame(event: string, data: string): Uint8Array {
  return new TextEncoder().encode(`event: ${event}\ndata: ${data}\n\n`)
}

/**
 * One who looks. What cannot be taken yet is kept once for each kind, the newest: a slow reader misses what is in between, and costs
 * no more memory than a quick one.
 */
export class Viewer {
  readonly tabs: ReadonlySet<Tab>
  /** The visit it belongs to, to end with it. */
  readonly visit: string | undefined
  readonly stream: ReadableStream<Uint8Array>
  /** Which version of each tab it was given. */
  readonly given = new Map<Tab, number>()
  /** Whether it received `trouble`, and no end of it. */
  troubled = false
  readonly #pending = new Map<string, Uint8Array>([['hello', HELLO]])
  #wake: (() => void) | undefined
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined
  #tookAt = performance.now()

  /** To be called once, when it has gone. */
  readonly ended: () => void

  constructor(
    tabs: ReadonlySet<Tab>,
    visit: string | undefined,
    left: (viewer: Viewer) => void,
    ended: () => void = () => undefined,
  ) {
    this.tabs = tabs
    this.visit = visit
    this.ended = ended
    this.stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller
        },
        pull: async (controller) => {
          this.#tookAt = performance.now()
          if (this.#pending.size === 0) await new Promise<void>((resolve) => (this.#wake = resolve))
          if (this.#controller === undefined) return
          const all = Buffer.concat([...this.#pending.values()])
          this.#pending.clear()
          controller.enqueue(new Uint8Array(all))
        },
        cancel: () => {
          this.#controller = undefined
          left(this)
          this.#wake?.()
        },
      },
      // Nothing is taken out before the client reads: what waits stays the newest.
      { highWaterMark: 0 },
    )
  }

  show(tab: Tab, version: number, bytes: Uint8Array): void {
    this.given.set(tab, version)
    this.troubled = false
    this.#pending.delete('trouble')
    this.#offer(tab, bytes)
  }

  trouble(bytes: Uint8Array): void {
    this.troubled = true
    // Behind what else waits.
    this.#pending.delete('trouble')
    this.#offer('trouble', bytes)
  }

  heartbeat(): void {
    if (this.#pending.size === 0) this.#offer('heartbeat', HEARTBEAT)
  }

  /** For how long it has taken nothing of what waits for it. */
  get stuckMs(): number {
    return this.#pending.size === 0 ? 0 : performance.now() - this.#tookAt
  }

  close(): void {
    const controller = this.#controller
    this.#controller = undefined
    controller?.close()
    this.#wake?.()
  }

  #offer(name: string, bytes: Uint8Array): void {
    this.#pending.set(name, bytes)
    this.#wake?.()
    this.#wake = undefined
  }
}
