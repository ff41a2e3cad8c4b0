import { readFile } from 'node:fs'
import { alreadyLost } from './connection.ts'
import { PROBE } from './postgres.sql.ts'
import type { PhysicalConnection, PostgresJs, PostgresJsQuery, PostgresJsReserved } from './postgresJsClient.ts'
import { closeConnection } from './postgresJsSocket.ts'

/** A list of postgres.js that nothing is taken from. */
const NO_LIST = { length: 0, push: () => undefined, remove: () => null, shift: () => undefined }

/** What a reserved `sql` has in common with that of the pool. */
const SHARED: ReadonlySet<string | symbol> = new Set(['types', 'typed', 'notify', 'array', 'json'])

/**
 * A connection that was taken while the pool had none to spare: at the moment at which a query of ours was sent on it, after all those
 * that came before. `sql.begin()` takes its connection in the same way, so both get it equally soon. Nothing else is sent on it from
 * then on. `sql.reserve()` cannot do that: it waits for an idle connection, and those that queries are pipelined on never become idle.
 *
 * Once the query is answered, the connection is put among the idle ones and reserved from there in the same moment. Where no connection
 * has been idle yet, so that their list is not known, it is used as it is, by a `client` of our own making.
 */
export class Pin {
  readonly physical: PhysicalConnection
  readonly #sql: PostgresJs
  /** By which postgres.js knows the connection as ours; it takes it away when the connection closes. */
  readonly #hook: NonNullable<PhysicalConnection['reserved']>
  readonly #waiting: PostgresJsQuery[] = []
  /** Whether the next query has to wait for the answers to those before. */
  #full = true
  /** The query with which the connection goes back. */
  #last: PostgresJsQuery | undefined
  /** Called when the query by which it was taken is answered. */
  #whenOurs: (() => void) | undefined

  /** To be made inside `onexecute`, which answers false then. */
  constructor(sql: PostgresJs, physical: PhysicalConnection, whenOurs: () => void) {
    this.physical = physical
    this.#sql = sql
    this.#whenOurs = whenOurs
    // With `release`, postgres.js leaves it to us when the connection goes back.
    this.#hook = Object.assign(() => this.#answered(), { release: true })
    physical.reserved = this.#hook
    // A connection that was opened for us would stay in the list of those that are being opened.
    physical.queue.remove(physical)
    physical.queue = NO_LIST
  }

  /** Gives the connection back. Resolves when it is in the pool, or has closed. */
  async release(): Promise<void> {
    this.#last ??= this.#query(this.#sql.unsafe(PROBE, [], { simple: true }))
    await this.#last.catch(() => undefined)
  }

  /** Puts it among the idle ones; the caller reserves it in the same moment. */
  moveTo(idle: PhysicalConnection['queue']): void {
    this.physical.reserved = null
    this.physical.queue.remove(this.physical)
    this.physical.queue = idle
    idle.push(this.physical)
  }

  /** Closes a connection whose state is not known. */
  discard(): void {
    if (this.physical.reserved !== this.#hook) return
    this.physical.reserved = null
    closeConnection(this.physical)
  }

  readonly #send = (query: PostgresJsQuery): void => {
    // It may serve another caller by now, or not be open.
    if (this.physical.reserved !== this.#hook) return query.reject(alreadyLost())
    if (this.#full) return void this.#waiting.push(query)
    // Without `release`, postgres.js takes the connection back as soon as it is answered outside of a transaction.
    if (query === this.#last) this.#hook.release = false
    this.#full = !this.physical.execute(query)
  }

  /** Everything that was sent is answered. */
  #answered(): void {
    this.#full = false
    const whenOurs = this.#whenOurs
    this.#whenOurs = undefined
    whenOurs?.()
    // It was released inside a transaction: no other caller may get it.
    if (!this.#hook.release) return this.discard()
    for (let next; !this.#full && (next = this.#waiting.shift()) !== undefined;) this.#send(next)
  }

  #query(made: unknown): PostgresJsQuery {
    const query = made as PostgresJsQuery
    query.handler = this.#send
    return query
  }

  /** As the `sql` that `reserve()` gives: the pool's own, except that everything is sent on this connection. */
  makeClient(): PostgresJsReserved {
    const own: Record<string | symbol, unknown> = {
      release: () => void this.release(),
      unsafe: (...args: Parameters<PostgresJs['unsafe']>) => this.#query(this.#sql.unsafe(...args)),
      file: (path: string, ...rest: unknown[]) => this.#file(path, rest),
    }
    return new Proxy(this.#sql, {
      apply: (sql, _self, args: unknown[]) => {
        const made: unknown = Reflect.apply(sql as unknown as (...given: unknown[]) => unknown, undefined, args)
        // Called with anything but a template it gives a part of a query.
        return made instanceof Promise ? this.#query(made) : made
      },
      get: (sql, name) => own[name] ?? (SHARED.has(name) ? (Reflect.get(sql, name) as unknown) : undefined),
      has: (_sql, name) => name in own || SHARED.has(name),
    }) as unknown as PostgresJsReserved
  }

  #file(path: string, rest: unknown[]): PostgresJsQuery {
    const query = this.#sql.file(path, ...rest) as PostgresJsQuery
    query.handler = () =>
      readFile(path, 'utf8', (error, text) => {
        if (error !== null) return query.reject(error)
        query.strings = [text]
        this.#send(query)
      })
    return query
  }
}
