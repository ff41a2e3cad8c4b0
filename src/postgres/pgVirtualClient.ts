import type { PgCallback, PgClient } from './pgClient.ts'
import {
  type Answered,
  type ControlCommand,
  refuseToEnd,
  type VirtualSession,
  type VirtualStatement,
} from './virtualClient.ts'

/** What `client.query()` takes instead of a text: it writes to the wire by itself. */
interface Submittable {
  submit(connection: object): unknown
  handleError(error: unknown, connection?: object): void
  readonly text?: string
  /** pg-query-stream's. */
  readonly cursor?: { readonly text?: string }
}

interface QueryConfig {
  readonly text?: string
  readonly name?: string
  readonly values?: unknown
  readonly callback?: PgCallback
}

/** A pooled client as the virtual one sees it. */
interface RawClient extends PgClient {
  query(...given: unknown[]): unknown
  readonly connection?: object
}

type Listener = (...given: unknown[]) => void
type Method = (this: unknown, ...given: unknown[]) => unknown

const ADDING = new Set(['on', 'once', 'addListener', 'prependListener', 'prependOnceListener'])
const REMOVING = new Set(['off', 'removeListener'])

/** The connection that a virtual client sends through. */
export interface PgSender {
  /** Whether a value cannot be written: then pg has not sent the statement. */
  readonly cannotWrite: (values: readonly unknown[]) => boolean
  /** Receives every error of a statement before its caller does: it may be the server's last. */
  readonly failed: (error: unknown) => void
}

/**
 * A `pg` client whose statements go through a session. Everything else is the real client's, except what would outlast the session:
 * listeners are taken off at its end, and properties that a query builder sets stay here.
 */
export function pgVirtualClient(raw: RawClient, session: VirtualSession, sender: PgSender): unknown {
  return new PgVirtualClient(raw, session, sender).proxy
}

class PgVirtualClient {
  readonly proxy: unknown
  readonly #raw: RawClient
  readonly #session: VirtualSession
  readonly #sender: PgSender
  readonly #own = new Map<string | symbol, unknown>()
  readonly #listeners: { readonly event: string; readonly listener: Listener }[] = []

  constructor(raw: RawClient, session: VirtualSession, sender: PgSender) {
    this.#raw = raw
    this.#session = session
    this.#sender = sender
    this.#own.set('query', (...given: unknown[]) => this.#query(given))
    this.#own.set('connect', (callback?: ConnectCallback) => this.#connect(callback))
    this.#own.set('release', () => session.release())
    this.#own.set('end', () => refuseToEnd('end'))
    this.#own.set('removeAllListeners', (event?: string) => this.#removeListeners(event))
    this.proxy = new Proxy(raw, {
      get: (_target, property) => this.#get(property),
      set: (_target, property, value) => {
        this.#own.set(property, value)
        return true
      },
      deleteProperty: (_target, property) => {
        this.#own.delete(property)
        return true
      },
      has: (target, property) => this.#own.has(property) || Reflect.has(target, property),
    })
    session.onEnd(() => this.#removeListeners())
  }

  #get(property: string | symbol): unknown {
    if (this.#own.has(property)) return this.#own.get(property)
    const value: unknown = Reflect.get(this.#raw, property, this.#raw)
    if (typeof value !== 'function') return value
    const method = (...given: unknown[]): unknown => this.#call(property, value as Method, given)
    this.#own.set(property, method)
    return method
  }

  #call(property: string | symbol, method: Method, given: unknown[]): unknown {
    this.#session.assertOpen()
    if (typeof property === 'string' && ADDING.has(property)) {
      this.#listeners.push({ event: String(given[0]), listener: given[1] as Listener })
    }
    if (typeof property === 'string' && REMOVING.has(property)) {
      const place = this.#listeners.findIndex(({ event, listener }) => event === given[0] && listener === given[1])
      if (place !== -1) this.#listeners.splice(place, 1)
    }
    const answer = Reflect.apply(method, this.#raw, given)
    return answer === this.#raw ? this.proxy : answer
  }

  #removeListeners(event?: string): unknown {
    for (const each of this.#listeners.splice(0)) {
      if (event === undefined || each.event === event) this.#raw.removeListener(each.event as 'error', each.listener)
      else this.#listeners.push(each)
    }
    return this.proxy
  }

  #connect(callback: ConnectCallback | undefined): unknown {
    if (callback === undefined) return new Promise((resolve) => resolve(this.#checkout().proxy))
    try {
      const client = this.#checkout()
      process.nextTick(callback, undefined, client.proxy, () => client.#session.release())
    } catch (error) {
      process.nextTick(callback, error, undefined, () => undefined)
    }
    return undefined
  }

  #checkout(): PgVirtualClient {
    return new PgVirtualClient(this.#raw, this.#session.checkout(), this.#sender)
  }

  #query(given: unknown[]): unknown {
    this.#session.assertOpen()
    const [config, values, callback] = given
    if (config === undefined || config === null) return this.#raw.query(...given)
    if (isSubmittable(config)) return this.#submit(config, given)
    const {
      text,
      name,
      values: inside,
      callback: called,
    } = (typeof config === 'string' ? { text: config } : config) as QueryConfig
    const list = typeof values === 'function' || values === undefined ? inside : values
    const neverSent = (): boolean =>
      isMalformed(text ?? name, list) || this.#sender.cannotWrite((list ?? []) as unknown[])
    const answer = [callback, values, called].find((each) => typeof each === 'function') as PgCallback | undefined
    if (answer !== undefined) {
      // A copy: older versions of pg write the callback into what they are given.
      const copy = typeof config === 'string' ? config : copyOf(config)
      return this.#askWithCallback(text, Array.isArray(values) ? [copy, values] : [copy], neverSent, answer)
    }
    // pg gives its errors the stack of who has asked: where it is sent at once, no promise stands between the two.
    let isCalling = true
    let sent: Promise<unknown> | undefined
    const later = new Promise((resolve, reject) => {
      this.#session.submit({
        text,
        send: (answered) => {
          const pending = this.#ask(given, neverSent, answered)
          if (isCalling) sent = pending
          else resolve(pending)
        },
        carriedOut: (what) => resolve(resultOf(what)),
        refuse: reject,
      })
    })
    isCalling = false
    return sent ?? later
  }

  async #ask(given: unknown[], neverSent: () => boolean, answered: Answered): Promise<unknown> {
    try {
      const result = await this.#raw.query(...given)
      answered()
      return result
    } catch (error) {
      this.#sender.failed(error)
      answered({ error, neverSent })
      throw error
    }
  }

  #askWithCallback(text: string | undefined, sent: unknown[], neverSent: () => boolean, answer: PgCallback): void {
    this.#session.submit({
      text,
      send: (answered) => {
        this.#raw.query(...sent, (error: Error | null | undefined, result: unknown) => {
          if (error === null || error === undefined) {
            answered()
          } else {
            this.#sender.failed(error)
            answered({ error, neverSent })
          }
          answer(error ?? null, result)
        })
      },
      carriedOut: (what) => answer(null, resultOf(what)),
      // As pg does: never before query() has returned.
      refuse: (error) => process.nextTick(answer, error, undefined),
    })
  }

  /** pg-cursor, pg-query-stream, pg-copy-streams. */
  #submit(query: Submittable, given: unknown[]): Submittable {
    const fail = query.handleError.bind(query)
    const refuse = (error: unknown): void => process.nextTick(() => fail(error, this.#raw.connection))
    const statement: VirtualStatement = {
      text: query.text ?? query.cursor?.text,
      asItIs: true,
      send: (answered) => {
        query.handleError = (error: unknown, connection?: object): void => {
          this.#sender.failed(error)
          answered({ error, neverSent: () => false })
          fail(error, connection)
        }
        this.#raw.query(...given)
      },
      carriedOut: () => undefined,
      refuse,
    }
    this.#session.submit(statement)
    return query
  }
}

type ConnectCallback = (error: unknown, client: unknown, release: () => void) => void

function isSubmittable(config: unknown): config is Submittable {
  return typeof (config as { submit?: unknown }).submit === 'function'
}

function copyOf(config: object): object {
  return Object.create(Object.getPrototypeOf(config), Object.getOwnPropertyDescriptors(config)) as object
}

/** What pg refuses before it sends anything. */
function isMalformed(text: unknown, values: unknown): boolean {
  return typeof text !== 'string' || (Boolean(values) && !Array.isArray(values))
}

/** What pg gives for a statement without rows. */
function resultOf(what: ControlCommand): object {
  return { command: what.toUpperCase(), rowCount: null, oid: null, rows: [], fields: [] }
}
