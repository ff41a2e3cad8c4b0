import type { Connection, Driver } from './connection.ts'
import type { PgClient, PgPool } from './pgClient.ts'
import { PoolRecovery, type Suspect } from './poolRecovery.ts'

/** What is looked at in a client that is not ours. The native one has no `connection`. */
interface Watched extends PgClient {
  /** False while a query is on its way. */
  readonly readyForQuery?: boolean
  /** The query that is answered next. The property of that name, without the underscore, prints a warning when it is read. */
  readonly _activeQuery?: unknown
  readonly connection?: { readonly stream?: { destroy(): unknown } }
  once(event: 'end', listener: () => void): unknown
}

/** A client that is opened beside the pool. */
interface OwnClient extends Watched {
  connect(callback: (error: Error | null | undefined) => void): void
  end(): unknown
}

type ClientClass = new (...given: unknown[]) => OwnClient

/** Closes a client without another word. Its `end()` would say goodbye and wait for the server to close. */
export function cutOff(client: PgClient): void {
  ;(client as Watched).connection?.stream?.destroy()
}

const pools = new WeakMap<PgPool, PgPoolClients>()

/** The clients of a pool that its recovery has to know: those that are being opened, and those that other code has checked out. */
export class PgPoolClients {
  readonly recovery: PoolRecovery
  readonly #pool: PgPool
  readonly #opening = new Set<Watched>()
  readonly #inUse = new Set<Watched>()
  readonly #ours = new Set<PgClient>()
  readonly #openClient: ClientClass | undefined

  /** Two Locksteps on one pool share it. `wrap` makes a connection of a client that is not the pool's. */
  static of(
    pool: PgPool,
    driver: Driver,
    wrap: (client: PgClient, close: (destroy: boolean) => void) => Connection,
    silenceMs: number,
  ): PgPoolClients {
    let clients = pools.get(pool)
    if (clients === undefined) pools.set(pool, (clients = new PgPoolClients(pool, driver, wrap, silenceMs)))
    else clients.recovery.within(silenceMs)
    return clients
  }

  private constructor(
    pool: PgPool,
    driver: Driver,
    wrap: (client: PgClient, close: (destroy: boolean) => void) => Connection,
    silenceMs: number,
  ) {
    this.#pool = pool
    this.#openClient = this.#recordOpening()
    pool.on?.('acquire', (client) => void this.#inUse.add(client as Watched))
    pool.on?.('release', (_error, client) => void this.#inUse.delete(client as Watched))
    pool.on?.('remove', (client) => void this.#inUse.delete(client as Watched))
    this.recovery = new PoolRecovery(
      {
        driver,
        hasOneServer: true,
        keepsBeside: false,
        lentCount: () => this.#ours.size,
        suspects: (whose) => this.#suspects(whose),
        beside: (withinMs) => this.#beside(wrap, withinMs),
      },
      silenceMs,
    )
  }

  /** Whether clients are known while they are opened: then a connect that is not answered takes no place forever. */
  get knowsOpening(): boolean {
    return this.#openClient !== undefined
  }

  take(client: PgClient): void {
    this.#ours.add(client)
    this.recovery.noteLent()
  }

  returnToPool(client: PgClient): void {
    this.#ours.delete(client)
  }

  /** A pool shows a client when it is open. To see it before, the pool gets a class that says so. */
  #recordOpening(): ClientClass | undefined {
    const pool = this.#pool as { Client?: ClientClass }
    const { Client } = pool
    if (typeof Client !== 'function') return undefined
    const note = (client: Watched): void => {
      this.#opening.add(client)
      client.once('end', () => this.#opening.delete(client))
    }
    pool.Client = class extends Client {
      constructor(...given: unknown[]) {
        super(...given)
        note(this)
      }
    }
    this.#pool.on?.('connect', (client) => void this.#opening.delete(client as Watched))
    return Client
  }

  #suspects(whose: 'all' | 'ours'): Suspect[] {
    const all = whose === 'all'
    const opening = all ? [...this.#opening].map((client) => suspectOf(client, 'opening')) : []
    const asked = [...this.#inUse]
      .filter((client) => client.readyForQuery === false && (all || this.#ours.has(client)))
      .map((client) => suspectOf(client, 'asked'))
    return [...opening, ...asked]
  }

  #beside(
    wrap: (client: PgClient, close: (destroy: boolean) => void) => Connection,
    withinMs: number,
  ): Promise<Connection> {
    const Client = this.#openClient
    if (Client === undefined) return Promise.reject(new Error('The pool does not show what its clients are made of.'))
    const client = new Client(this.#pool.options)
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => cutOff(client), withinMs).unref()
      client.on('error', () => undefined)
      client.connect((error) => {
        clearTimeout(timer)
        if (error === null || error === undefined)
          resolve(wrap(client, (destroy) => void (destroy ? cutOff(client) : client.end())))
        else reject(error)
      })
    })
  }
}

function suspectOf(client: Watched, state: Suspect['state']): Suspect {
  const { processID, _activeQuery: question } = client
  return { id: client, pid: processID ?? undefined, question, state, end: () => cutOff(client) }
}
