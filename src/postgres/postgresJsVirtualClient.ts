import { readFile } from 'node:fs'
import { TransactionControlError } from '../errors.ts'
import type { PostgresJs, PostgresJsClient } from './postgresJsClient.ts'
import { neverSent, undefinedAmong } from './postgresJsValues.ts'
import { notify } from './postgres.sql.ts'
import { type ControlCommand, refuseToEnd, type VirtualSession } from './virtualClient.ts'

/** A query of postgres.js: it is sent when it is awaited, which may be long after it was made. */
interface LazyQuery {
  handler: Handler
  strings: readonly string[]
  readonly args: readonly unknown[]
  readonly onlyDescribe?: boolean
  resolve: (answer: unknown) => void
  reject: (error: unknown) => void
}

type Handler = (query: LazyQuery) => unknown
type Method = (...given: never[]) => unknown
type TransactionFunction = (sql: unknown) => unknown

/** The `sql` of one connection, as a function with methods. */
interface RawSql extends PostgresJsClient {
  (...given: unknown[]): unknown
  file(...given: unknown[]): LazyQuery
}

/** What a reserved `sql` lacks and the types of postgres.js promise; query builders read the options. */
const OF_THE_POOL = new Set<string | symbol>(['options', 'parameters', 'PostgresError', 'CLOSE', 'END'])

/**
 * A `sql` of postgres.js whose statements go through a session. Beside what a reserved one has, it has `begin()`, `savepoint()` and
 * `reserve()`, so that it can stand in for the pool.
 */
export function postgresJsVirtualClient(
  client: PostgresJsClient,
  pool: PostgresJs,
  session: VirtualSession,
  failed: FailureListener,
): unknown {
  return new VirtualSql(client as RawSql, pool, session, failed).proxy
}

/** Receives every error of a statement before its caller does: it may be the server's last. */
type FailureListener = (error: unknown) => void

class VirtualSql {
  readonly proxy: unknown
  readonly #raw: RawSql
  readonly #pool: PostgresJs
  readonly #session: VirtualSession
  readonly #failed: FailureListener
  readonly #own: ReadonlyMap<string | symbol, unknown>

  constructor(raw: RawSql, pool: PostgresJs, session: VirtualSession, failed: FailureListener) {
    this.#raw = raw
    this.#pool = pool
    this.#session = session
    this.#failed = failed
    this.#own = new Map<string | symbol, unknown>([
      ['release', () => session.release()],
      ['end', () => refuseToEnd('end')],
      ['close', () => refuseToEnd('close')],
      ['reserve', async () => new VirtualSql(raw, pool, session.checkout(), failed).proxy],
      ['begin', (...given: unknown[]) => this.#begin(given)],
      ['savepoint', (...given: unknown[]) => this.#savepoint(given)],
      ['prepare', refuseToPrepare],
      ['file', (...given: unknown[]) => this.#file(given)],
      [
        'notify',
        (channel: string, payload: unknown) => this.#made(raw.unsafe(notify(), [channel, String(payload)] as never[])),
      ],
    ])
    this.proxy = new Proxy(raw, {
      apply: (target, _self, given: unknown[]) => {
        session.assertOpen()
        return this.#made(Reflect.apply(target, undefined, given))
      },
      get: (target, property) => {
        if (this.#own.has(property)) return this.#own.get(property)
        const source: object = OF_THE_POOL.has(property) ? pool : target
        const value: unknown = Reflect.get(source, property, source)
        if (typeof value !== 'function' || property === 'PostgresError') return value
        return this.#guarded(value as Method)
      },
    })
  }

  /** The method itself may have methods, as `sql.types` does. */
  #guarded(method: Method): unknown {
    return new Proxy(method, {
      apply: (target, _self, given: never[]) => {
        this.#session.assertOpen()
        return this.#made(Reflect.apply(target, this.#raw, given))
      },
    })
  }

  /** Has a query that was made sent through the session. */
  #made(query: unknown): unknown {
    if (!isLazyQuery(query)) return query
    const send = query.handler
    // postgres.js keeps its `debug` on the function.
    query.handler = Object.assign((made: LazyQuery) => this.#submit(made, send), send)
    return query
  }

  #submit(query: LazyQuery, send: Handler): void {
    this.#session.submit({
      text: query.onlyDescribe === true ? undefined : textOf(query),
      send: (answered) => {
        const refusal = undefinedAmong(this.#pool, valuesOf(query))
        if (refusal !== undefined) return query.reject(refusal)
        hear(query, (failed, error) => {
          if (!failed) return answered()
          this.#failed(error)
          answered({ error, neverSent: () => neverSent(this.#pool, error, valuesOf(query)) })
        })
        send(query)
      },
      carriedOut: (what) => query.resolve(resultOf(what)),
      refuse: (error) => query.reject(error),
    })
  }

  /** It is read here: postgres.js would send it without asking. */
  #file(given: unknown[]): unknown {
    this.#session.assertOpen()
    const query = this.#raw.file(...given)
    const { handler } = this.#raw.unsafe('') as unknown as LazyQuery
    const read: Handler = (made) => {
      readFile(given[0] as string, 'utf8', (error, text) => {
        if (error) return made.reject(error)
        made.strings = [text]
        this.#submit(made, handler)
      })
    }
    query.handler = Object.assign(read, handler)
    return query
  }

  #begin(given: unknown[]): Promise<unknown> {
    const fn = given.at(-1) as TransactionFunction
    const modes = given.length > 1 && typeof given[0] === 'string' ? given[0] : ''
    // As postgres.js does.
    return this.#nest(modes.replaceAll(/[^a-z ]/gi, ''), fn)
  }

  #savepoint(given: unknown[]): Promise<unknown> {
    const [first] = given
    if (isTemplate(first)) return this.#nest('', (sql) => (sql as RawSql)(...given))
    return this.#nest('', given.at(-1) as TransactionFunction)
  }

  #nest(modes: string, fn: TransactionFunction): Promise<unknown> {
    return this.#session.nest(modes, async (session) => {
      const made = fn(new VirtualSql(this.#raw, this.#pool, session, this.#failed).proxy)
      return Array.isArray(made) ? Promise.all(made) : made
    })
  }
}

function refuseToPrepare(): never {
  throw new TransactionControlError('prepare() was called on tx.client.', {
    advice: 'Return from the function to commit: a transaction of Lockstep is not handed over to another session.',
  })
}

function isTemplate(value: unknown): boolean {
  return Array.isArray((value as { raw?: unknown } | undefined)?.raw)
}

function isLazyQuery(made: unknown): made is LazyQuery {
  if (!(made instanceof Promise)) return false
  const { handler, reject, strings } = made as unknown as Partial<LazyQuery>
  return typeof handler === 'function' && typeof reject === 'function' && Array.isArray(strings)
}

/** The text as postgres.js will build it, as far as words are concerned: a value is a parameter, a helper is one name. */
function textOf({ strings, args }: LazyQuery): string {
  return strings.map((part, place) => (place === 0 ? part : `${fragmentOf(args[place - 1])}${part}`)).join('')
}

function fragmentOf(arg: unknown): string {
  if (isLazyQuery(arg)) return textOf(arg)
  if (Array.isArray(arg) && isLazyQuery(arg[0])) return arg.map((each) => ` ${fragmentOf(each)}`).join('')
  return ' $1 '
}

/** The plain values among the arguments of a query and its fragments. */
function valuesOf({ args }: LazyQuery): unknown[] {
  return args.flatMap((arg) => (isLazyQuery(arg) ? valuesOf(arg) : [arg]))
}

/** Hears how a query ends. A cursor puts another function in the place of each for every batch. */
function hear(query: LazyQuery, ended: (failed: boolean, error?: unknown) => void): void {
  for (const name of ['resolve', 'reject'] as const) {
    let tell = query[name]
    Object.defineProperty(query, name, {
      configurable: true,
      get: () => (answer: unknown) => {
        ended(name === 'reject', answer)
        tell(answer)
      },
      set: (given: (answer: unknown) => void) => {
        tell = given
      },
    })
  }
}

/** What postgres.js gives for a statement without rows. */
function resultOf(what: ControlCommand): unknown[] {
  return Object.assign([], { command: what.toUpperCase(), count: null, columns: [], state: null, statement: null })
}
