import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Framing, untyped } from './wireFraming.ts'

/**
 * What becomes of a chunk:
 * - `forward`: it goes on.
 * - `cut-before`: it is dropped and both sides are closed. Of a client's chunk: the COMMIT never reaches the server. Of
 *   a server's chunk: the COMMIT was done, for its reply is here, and the client never learns it.
 * - `cut-after`: it goes on, then its sender's side is closed at once and the other side `lingerMs` later. Of a client's
 *   chunk: the COMMIT reaches the server, and the client is gone before any reply.
 * - `hold`: it and all that follows in this direction, the end of the stream included, waits for `release()`. Both sides
 *   stay open in silence. Released after the client gave up, it is the late packet of a client long thought dead.
 */
export type Verdict = 'forward' | 'cut-before' | 'cut-after' | 'hold'

/** Sees every chunk as it came: it may hold several messages or a part of one. */
export type DataHook = (chunk: Buffer, connection: ProxyConnection) => Verdict

export interface ProxyOptions {
  readonly targetPort: number
  /** Default 127.0.0.1. */
  readonly targetHost?: string
  /** Default 200: ample for the server to work off what was forwarded before a `cut-after`. */
  readonly lingerMs?: number
}

export interface ProxyConnection {
  /** Counts from 1. */
  readonly id: number
  readonly closed: boolean
  /** Closes both sides, dropping what is held. */
  cut(): void
  /** From now on everything is swallowed in both directions, the end of a stream included, and nothing is closed. */
  silence(): void
  /** Forwards what was held, without asking the hooks again. */
  release(): void
}

export interface Proxy {
  readonly port: number
  /** Those now open, oldest first. */
  readonly connections: readonly ProxyConnection[]
  /**
   * Groups of messages the client asked an answer for: each simple Query, each Sync, over all connections. Opening a
   * connection does not count. Set it to 0 to count anew.
   */
  roundTrips: number
  /**
   * How often a client had to wait for the network: groups sent while an earlier one is unanswered, pipelined that is,
   * share one wait. Set it to 0 to count anew.
   */
  waits: number
  /** The same URL, led through the proxy. */
  url(original: string): string
  /** One hook at a time; undefined takes it away. */
  onClientData(hook: DataHook | undefined): void
  onServerData(hook: DataHook | undefined): void
  cutAll(): void
  /** A network that loses everything: silences what is open, and what is opened until `resume`. */
  silence(): void
  /** New connections pass again. Silenced ones stay so: bytes are missing from them. */
  resume(): void
  /** Whether new connections are closed as soon as they are accepted. */
  refuse(refusing: boolean): void
  /** How many connections it has refused. */
  readonly refused: number
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * A TCP proxy on 127.0.0.1 that misbehaves on demand, to put faults at an exact point of PostgreSQL's protocol. Hand-written because other
 * proxies cut by time or by bytes, not at a message such as COMMIT.
 */
export async function startProxy(options: ProxyOptions): Promise<Proxy> {
  const open = new Set<Connection>()
  const state: ProxyState = { lingerMs: options.lingerMs ?? 200, roundTrips: 0, waits: 0 }
  let silent = false
  let refusing = false
  let refused = 0
  let count = 0
  // Half-open, so that the end of one stream is passed on and not answered by us.
  const listener = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    if (refusing) {
      refused++
      client.on('error', () => {})
      client.destroy()
      return
    }
    const server = connect({
      host: options.targetHost ?? '127.0.0.1',
      port: options.targetPort,
      allowHalfOpen: true,
      noDelay: true,
    })
    const connection = new Connection(++count, client, server, state)
    open.add(connection)
    connection.whenClosed(() => open.delete(connection))
    if (silent) connection.silence()
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo

  const close = async (): Promise<void> => {
    if (!listener.listening) return
    const closed = once(listener, 'close')
    listener.close()
    for (const connection of open) connection.cut()
    await closed
  }
  return {
    port,
    get connections() {
      return [...open]
    },
    get roundTrips() {
      return state.roundTrips
    },
    set roundTrips(value) {
      state.roundTrips = value
    },
    get waits() {
      return state.waits
    },
    set waits(value) {
      state.waits = value
    },
    url(original) {
      const changed = new URL(original)
      changed.hostname = '127.0.0.1'
      changed.port = String(port)
      return changed.href
    },
    onClientData: (hook) => void (state.clientHook = hook),
    onServerData: (hook) => void (state.serverHook = hook),
    cutAll() {
      for (const connection of open) connection.cut()
    },
    silence() {
      silent = true
      for (const connection of open) connection.silence()
    },
    resume: () => void (silent = false),
    refuse: (value) => void (refusing = value),
    get refused() {
      return refused
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

interface ProxyState {
  readonly lingerMs: number
  roundTrips: number
  waits: number
  clientHook?: DataHook | undefined
  serverHook?: DataHook | undefined
}

class Connection implements ProxyConnection {
  readonly id: number
  readonly #client: Socket
  readonly #server: Socket
  readonly #state: ProxyState
  readonly #frontend = new Framing('frontend')
  readonly #backend = new Framing('backend')
  readonly #toServer: Direction
  readonly #toClient: Direction
  #unanswered = 0

  constructor(id: number, client: Socket, server: Socket, state: ProxyState) {
    this.id = id
    this.#client = client
    this.#server = server
    this.#state = state
    this.#toServer = new Direction(client, server, (chunk) => {
      this.#countFrontend(chunk)
      this.#judge(this.#toServer, chunk, state.clientHook)
    })
    this.#toClient = new Direction(server, client, (chunk) => {
      this.#countBackend(chunk)
      this.#judge(this.#toClient, chunk, state.serverHook)
    })
  }

  get closed(): boolean {
    return this.#client.destroyed && this.#server.destroyed
  }

  cut(): void {
    this.#toServer.drop()
    this.#toClient.drop()
    this.#client.destroy()
    this.#server.destroy()
  }

  silence(): void {
    this.#toServer.drop()
    this.#toClient.drop()
  }

  release(): void {
    this.#toServer.release()
    this.#toClient.release()
  }

  whenClosed(callback: () => void): void {
    const check = (): void => {
      if (this.closed) callback()
    }
    this.#client.once('close', check)
    this.#server.once('close', check)
  }

  #judge(direction: Direction, chunk: Buffer, hook: DataHook | undefined): void {
    // What is held or swallowed already does not come up for judgement again.
    const verdict = direction.flowing && hook !== undefined ? hook(chunk, this) : 'forward'
    switch (verdict) {
      case 'forward':
        direction.pass(chunk)
        break
      case 'hold':
        direction.hold()
        direction.pass(chunk)
        break
      case 'cut-before':
        this.cut()
        break
      case 'cut-after': {
        direction.pass(chunk)
        // What comes back in the meantime has nobody to go to.
        this.silence()
        direction.source.destroy()
        const linger = setTimeout(() => direction.target.destroy(), this.#state.lingerMs)
        direction.target.once('close', () => clearTimeout(linger))
        break
      }
    }
  }

  #countFrontend(chunk: Buffer): void {
    for (const type of this.#frontend.push(chunk)) {
      if (type === untyped.encryption) this.#backend.expectAnswer()
      if (type !== 'Q' && type !== 'S') continue
      this.#state.roundTrips++
      if (this.#unanswered++ === 0) this.#state.waits++
    }
  }

  #countBackend(chunk: Buffer): void {
    for (const type of this.#backend.push(chunk)) {
      if (type === `${untyped.answer} S` || type === `${untyped.answer} G`) {
        this.#frontend.goOpaque()
        this.#backend.goOpaque()
      }
      // The first ReadyForQuery answers the start-up, which was not counted.
      if (type === 'Z') this.#unanswered = Math.max(0, this.#unanswered - 1)
    }
  }
}

type Ending = 'end' | 'destroy'

/** One of the two streams of a connection, with what is held of it. */
class Direction {
  readonly source: Socket
  readonly target: Socket
  #mode: 'flowing' | 'holding' | 'dropping' = 'flowing'
  readonly #held: (Buffer | Ending)[] = []

  constructor(source: Socket, target: Socket, onData: (chunk: Buffer) => void) {
    this.source = source
    this.target = target
    let lost = false
    source.on('data', onData)
    source.on('error', () => (lost = true))
    source.once('end', () => this.pass('end'))
    source.once('close', () => this.pass(lost ? 'destroy' : 'end'))
    target.on('drain', () => source.resume())
  }

  get flowing(): boolean {
    return this.#mode === 'flowing'
  }

  hold(): void {
    if (this.#mode === 'flowing') this.#mode = 'holding'
  }

  drop(): void {
    this.#mode = 'dropping'
    this.#held.length = 0
    // A silenced reader still reads, or its kernel would tell the sender that nobody listens.
    this.source.resume()
  }

  release(): void {
    if (this.#mode !== 'holding') return
    this.#mode = 'flowing'
    for (const item of this.#held.splice(0)) this.pass(item)
  }

  pass(item: Buffer | Ending): void {
    if (this.#mode === 'dropping') return
    if (this.#mode === 'holding') this.#held.push(item)
    else if (item === 'destroy') this.target.destroy()
    else if (this.target.destroyed || this.target.writableEnded) return
    else if (item === 'end') this.target.end()
    else if (!this.target.write(item)) this.source.pause()
  }
}
