import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { Conversation, type Sent } from './conversation.ts'
import { ROLLBACK } from './testing.sql.ts'
import { Framing, type Message, untyped } from './wireFraming.ts'

/**
 * What happens to a chunk:
 * - `forward`: it continues.
 * - `cut-before`: it is dropped and both sides are closed. Of a client's chunk: the COMMIT never reaches the server. Of
 *   a server's chunk: the COMMIT was done, for its reply is here, and the client never learns it.
 * - `cut-after`: it continues, then its sender's side is closed at once and the other side `lingerMs` later. Of a client's
 *   chunk: the COMMIT reaches the server, and the client is gone before any reply.
 * - `hold`: it and all that follows in this direction, the end of the stream included, waits for `release()`. Both sides
 *   stay open in silence. Released after the client gave up, it is the late packet of a client long thought dead.
 */
export type Verdict = 'forward' | 'cut-before' | 'cut-after' | 'hold'

/** Sees every chunk as it came: it may hold several messages or a part of one. */
export type DataHook = (chunk: Buffer, connection: ProxyConnection) => Verdict

/**
 * Sees the statements that a chunk of the client sends for execution (`sent`), or that a chunk of the server completes the answers to
 * (`answered`). Gives undefined for what is none of its business.
 */
export type StepHook = (
  when: 'sent' | 'answered',
  statements: readonly Sent[],
  connection: ProxyConnection,
) => Verdict | undefined

/** What `startProxy()` takes. */
export interface ProxyOptions {
  readonly targetPort: number
  /** Default 127.0.0.1. */
  readonly targetHost?: string
  /** Default 200: ample for the server to work off what was forwarded before a `cut-after`. */
  readonly lingerMs?: number
}

const PROXY_OPTIONS: OptionNames<ProxyOptions> = { targetPort: true, targetHost: true, lingerMs: true }

/** One client's connection through the proxy. */
export interface ProxyConnection {
  /** Counts from 1. */
  readonly id: number
  readonly closed: boolean
  /** The statements of the transaction that is open on it, or was last, from its BEGIN on. */
  readonly transaction: readonly string[]
  /** Closes both sides, dropping what is held. */
  cut(): void
  /** From now on everything is swallowed in both directions, the end of a stream included, and nothing is closed. */
  silence(): void
  /** Forwards what was held, without asking the hooks again. */
  release(): void
  /**
   * Has the server answer the message that is held with an error: sends the statement in its place, rolls the transaction back, and gives
   * the client the server's error.
   */
  failHeld(statement: string): void
}

/** A proxy in front of a server. */
export interface Proxy {
  readonly port: number
  /** Those now open, oldest first. */
  readonly connections: readonly ProxyConnection[]
  /**
   * Groups of messages the client asked an answer for: each simple Query, each Sync, over all connections. Opening a
   * connection does not count. Set it to 0 to count again.
   */
  roundTrips: number
  /**
   * How often a client had to wait for the network: groups sent while an earlier one is unanswered, pipelined that is,
   * share one wait. Set it to 0 to count again.
   */
  waits: number
  /** Whether a connection is encrypted: then nothing can be read, and no statement is recognized. */
  readonly encrypted: boolean
  /** The same URL, led through the proxy. */
  url(original: string): string
  /** One hook at a time; undefined takes it away. */
  onClientData(hook: DataHook | undefined): void
  onServerData(hook: DataHook | undefined): void
  /** Any number of these, asked before the two above. The function that it returns takes the hook away. */
  onStep(hook: StepHook): () => void
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
 *
 * @example
 * await using proxy = await startProxy({ targetPort: 5432, targetHost: 'localhost' })
 * const pool = new pg.Pool({ connectionString: proxy.url('postgres://localhost/app') })
 */
export async function startProxy(options: ProxyOptions): Promise<Proxy> {
  checkOptions('startProxy()', options, PROXY_OPTIONS)
  const open = new Set<Connection>()
  const state: ProxyState = {
    lingerMs: options.lingerMs ?? 200,
    roundTrips: 0,
    waits: 0,
    encrypted: false,
    stepHooks: new Set(),
  }
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
    get encrypted() {
      return state.encrypted
    },
    url(original) {
      const changed = new URL(original)
      changed.hostname = '127.0.0.1'
      changed.port = String(port)
      return changed.href
    },
    onClientData: (hook) => void (state.clientHook = hook),
    onServerData: (hook) => void (state.serverHook = hook),
    onStep(hook) {
      state.stepHooks.add(hook)
      return () => void state.stepHooks.delete(hook)
    },
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
  encrypted: boolean
  readonly stepHooks: Set<StepHook>
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
  readonly #conversation = new Conversation()
  #waiting = 0
  #interjection: Interjection | undefined
  /** Called when the server has answered everything. */
  #whenAnswered: (() => void) | undefined

  constructor(id: number, client: Socket, server: Socket, state: ProxyState) {
    this.id = id
    this.#client = client
    this.#server = server
    this.#state = state
    this.#toServer = new Direction(client, server, (chunk) => {
      const sent = this.#readFrontend(this.#frontend.push(chunk))
      this.#judge(this.#toServer, chunk, () => this.#step('sent', sent) ?? state.clientHook?.(chunk, this))
    })
    this.#toClient = new Direction(server, client, (chunk) => {
      if (this.#interjection !== undefined) return this.#interject(this.#interjection, chunk)
      const answered = this.#readBackend(this.#backend.push(chunk))
      this.#judge(this.#toClient, chunk, () => this.#step('answered', answered) ?? state.serverHook?.(chunk, this))
      if (this.#conversation.unanswered === 0) this.#whenAnswered?.()
    })
  }

  get closed(): boolean {
    return this.#client.destroyed && this.#server.destroyed
  }

  get transaction(): readonly string[] {
    return this.#conversation.texts
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

  failHeld(statement: string): void {
    const begin = (): void => {
      this.#whenAnswered = undefined
      this.#interjection = new Interjection()
      // What the client sent of this group before, and the server has not run, is ended by the Sync.
      this.#server.write(Buffer.concat([SYNC, simpleQuery(statement), simpleQuery(ROLLBACK)]))
    }
    // The group that is held is among those without an answer.
    if (this.#conversation.unanswered <= 1) begin()
    else this.#whenAnswered = () => (this.#conversation.unanswered <= 1 ? begin() : undefined)
  }

  #interject(interjection: Interjection, chunk: Buffer): void {
    const answer = interjection.push(chunk)
    if (answer === undefined) return
    this.#interjection = undefined
    this.#readBackend([{ type: 'Z', content: Buffer.from('I') }])
    this.#toServer.forgetHeld()
    this.#toClient.pass(answer)
    this.#toServer.release()
  }

  whenClosed(callback: () => void): void {
    const check = (): void => {
      if (this.closed) callback()
    }
    this.#client.once('close', check)
    this.#server.once('close', check)
  }

  #judge(direction: Direction, chunk: Buffer, ask: () => Verdict | undefined): void {
    // What is held or swallowed already does not come up for judgement again.
    const verdict = direction.flowing ? (ask() ?? 'forward') : 'forward'
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
        // What comes back in the meantime has no receiver.
        this.silence()
        direction.source.destroy()
        const linger = setTimeout(() => direction.target.destroy(), this.#state.lingerMs)
        direction.target.once('close', () => clearTimeout(linger))
        break
      }
    }
  }

  /** The first hook that has something to say about the step. */
  #step(when: 'sent' | 'answered', statements: readonly Sent[]): Verdict | undefined {
    if (statements.length === 0) return undefined
    for (const hook of this.#state.stepHooks) {
      const verdict = hook(when, statements, this)
      if (verdict !== undefined) return verdict
    }
    return undefined
  }

  #readFrontend(messages: readonly Message[]): Sent[] {
    for (const { type } of messages) {
      if (type === untyped.encryption) this.#backend.expectAnswer()
      if (type !== 'Q' && type !== 'S') continue
      this.#state.roundTrips++
      if (this.#waiting++ === 0) this.#state.waits++
    }
    return this.#conversation.sends(messages)
  }

  #readBackend(messages: readonly Message[]): Sent[] {
    for (const { type } of messages) {
      if (type === `${untyped.answer} S` || type === `${untyped.answer} G`) {
        this.#state.encrypted = true
        this.#frontend.goOpaque()
        this.#backend.goOpaque()
      }
      // The first ReadyForQuery answers the start-up, which was not counted.
      if (type === 'Z') this.#waiting = Math.max(0, this.#waiting - 1)
    }
    return this.#conversation.answers(messages)
  }
}

const SYNC = Buffer.from([0x53, 0, 0, 0, 4])

function simpleQuery(text: string): Buffer {
  const content = Buffer.from(`${text}\0`)
  const head = Buffer.alloc(5, 'Q')
  head.writeUInt32BE(content.length + 4, 1)
  return Buffer.concat([head, content])
}

/** The server's answers to a Sync, a statement that fails and a ROLLBACK: of them the client gets the first error, and the last ReadyForQuery. */
class Interjection {
  #bytes: Buffer = Buffer.alloc(0)
  readonly #forClient: Buffer[] = []
  #ready = 0
  #failed = false

  /** What the client gets, once all is there. */
  push(chunk: Buffer): Buffer | undefined {
    this.#bytes = Buffer.concat([this.#bytes, chunk])
    while (this.#bytes.length >= 5) {
      const end = 1 + this.#bytes.readUInt32BE(1)
      if (this.#bytes.length < end) return undefined
      const message = this.#bytes.subarray(0, end)
      this.#bytes = this.#bytes.subarray(end)
      const type = String.fromCharCode(message[0] ?? 0)
      if (type === 'Z' && ++this.#ready === 3) return Buffer.concat([...this.#forClient, message, this.#bytes])
      if (type === 'Z' || this.#failed) continue
      this.#forClient.push(message)
      this.#failed = type === 'E'
    }
    return undefined
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
    // A silenced reader still reads, or its kernel would stop the sender.
    this.source.resume()
  }

  /** Drops the chunk that was held first. */
  forgetHeld(): void {
    this.#held.shift()
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
