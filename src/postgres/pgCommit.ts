import type { Commit, Statement } from './connection.ts'
import type { PgCallback, PgClient } from './pgDriver.ts'
import { COMMIT, PROBE } from './postgres.sql.ts'
import { endsSession, isSqlState } from './sqlstate.ts'

/** The part of pg's own protocol writer that is used here, as pg-cursor does. */
interface PgProtocol {
  readonly stream?: { cork?(): void; uncork?(): void }
  parse(message: { text: string }): void
  bind(message: { values: unknown[]; valueMapper: ValueMapper }): void
  execute(message: object): void
  sync(): void
  sendCopyFail(reason: string): void
}

type ValueMapper = (value: unknown) => unknown

interface PgQuery {
  prepare(connection: object): void
}

type PgQueryClass = new (config: { text: string; values: unknown[] }, callback: PgCallback) => PgQuery

const mappers = new WeakMap<PgQueryClass, ValueMapper>()

/** How this pg writes values; undefined where it does not show. */
function valueMapperOf(client: PgClient): ValueMapper | undefined {
  const { Query } = client.constructor as { Query?: PgQueryClass }
  if (typeof Query !== 'function' || typeof Query.prototype.prepare !== 'function') return undefined
  let mapper = mappers.get(Query)
  if (mapper === undefined) {
    const nothing = (): void => undefined
    const bind = ({ valueMapper }: { valueMapper?: ValueMapper }): void => {
      mapper = valueMapper
    }
    const listener = { parse: nothing, bind, describe: nothing, execute: nothing, sync: nothing, parsedStatements: {} }
    new Query({ text: PROBE, values: [1] }, nothing).prepare(listener)
    if (typeof mapper !== 'function') return undefined
    mappers.set(Query, mapper)
  }
  return mapper
}

/**
 * Statements and COMMIT in one message of the extended protocol, with one Sync at its end: where a statement fails, the server skips
 * the rest, COMMIT among it. Two messages sent back to back would not do: a value that cannot be written would keep the first at
 * home, and COMMIT would go alone.
 */
export function commitInOneMessage(client: PgClient, statements: readonly Statement[]): PgCommit | undefined {
  // There pg takes no query of another's making.
  if (client.pipeline === true) return undefined
  const mapper = valueMapperOf(client)
  return mapper && new PgCommit(statements, mapper)
}

/** What `client.query()` takes instead of a text. */
export class PgCommit {
  callback: PgCallback | undefined
  readonly #statements: readonly Statement[]
  readonly #mapper: ValueMapper
  #unwritten: Error | undefined
  /** The tags of what was run, in order. */
  readonly #tags: string[] = []

  constructor(statements: readonly Statement[], mapper: ValueMapper) {
    this.#statements = statements
    this.#mapper = mapper
  }

  submit(connection: PgProtocol): Error | null {
    connection.stream?.cork?.()
    try {
      for (const { text, values } of this.#statements) this.#write(connection, text, [...values])
      this.#write(connection, COMMIT, [])
    } catch (error) {
      // A value that cannot be written: what is on its way is harmless without COMMIT.
      this.#unwritten = error instanceof Error ? error : new Error(String(error))
    } finally {
      connection.sync()
      connection.stream?.uncork?.()
    }
    return null
  }

  #write(connection: PgProtocol, text: string, values: unknown[]): void {
    connection.parse({ text })
    connection.bind({ values, valueMapper: this.#mapper })
    connection.execute({})
  }

  handleCommandComplete(message: { text: string }): void {
    this.#tags.push(message.text)
  }

  handleError(error: Error): void {
    // The server's own word, given before it came to COMMIT: that was never run, whatever becomes of the session.
    const certain = isSqlState(error) && this.#tags.length < this.#statements.length
    if (certain && !endsSession(error)) this.callback?.(null, { command: '', failure: error } satisfies Commit)
    else this.callback?.(error, undefined)
  }

  handleReadyForQuery(): void {
    const answer: Commit =
      this.#unwritten === undefined ? { command: this.#tags.at(-1) ?? '' } : { command: '', failure: this.#unwritten }
    this.callback?.(null, answer)
  }

  handleRowDescription(): void {}
  handleDataRow(): void {}
  handlePortalSuspended(): void {}
  handleCopyData(): void {}
  handleCopyInResponse(connection: PgProtocol): void {
    connection.sendCopyFail('There is nothing to copy from.')
  }
  handleEmptyQuery(): void {
    // It has no tag of its own.
    this.#tags.push('')
  }
}
