import { isEndedEarly } from './commitCheck.ts'
import type { Commit, ConnectionMemory, KeptStatement, Statement, StatementResult, TextRow } from './connection.ts'
import { canKeep, keepStatement, NO_SUCH_STATEMENT, noteForgotten, StatementForgottenError } from './keptStatements.ts'
import type { PgCallback, PgClient } from './pgClient.ts'
import { COMMIT, PROBE } from './postgres.sql.ts'
import { codeOf, endsSession, isSqlState } from './sqlstate.ts'

/** The part of pg's own protocol writer that is used here, as pg-cursor does. */
interface PgProtocol {
  readonly stream?: { cork?(): void; uncork?(): void }
  parse(message: { text: string; name?: string }): void
  bind(message: { statement?: string; values: unknown[]; valueMapper: ValueMapper }): void
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
export function valueMapperOf(client: PgClient): ValueMapper | undefined {
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

/** Also if a function returns another type since: a plan that is kept must not. */
const MEANS_PREPARE_AGAIN: ReadonlySet<string> = new Set([NO_SUCH_STATEMENT, '0A000'])

/**
 * Several statements in one message of the extended protocol, with one Sync at its end: where one fails, the server skips the rest.
 * It is what `client.query()` takes instead of a text. Texts that recur are kept by the server process under a name, which saves it
 * the parsing and planning: a fifth of what a short transaction costs.
 */
export abstract class PgMessage {
  callback: PgCallback | undefined
  protected readonly statements: readonly Statement[]
  /** The tags of what was run, in order. */
  protected readonly tags: string[] = []
  /** A value that could not be written. */
  protected unwritten: Error | undefined
  readonly #mapper: ValueMapper
  /** Undefined where the server process can keep nothing. */
  readonly #memory: ConnectionMemory | undefined
  /** What was sent by name, in the order of the statements. */
  readonly #named: (KeptStatement | undefined)[] = []

  constructor(statements: readonly Statement[], mapper: ValueMapper, memory: ConnectionMemory) {
    this.statements = statements
    this.#mapper = mapper
    if (canKeep(memory)) this.#memory = memory
  }

  submit(connection: PgProtocol): Error | null {
    connection.stream?.cork?.()
    try {
      for (const statement of this.statements) this.#write(connection, statement)
    } catch (error) {
      this.unwritten = error instanceof Error ? error : new Error(String(error))
    } finally {
      connection.sync()
      connection.stream?.uncork?.()
    }
    return null
  }

  #write(connection: PgProtocol, { text, values, recurs }: Statement): void {
    const kept = recurs === true && this.#memory !== undefined ? keepStatement(this.#memory, text) : undefined
    const name = kept?.name ?? ''
    this.#named.push(kept)
    if (kept?.there !== true) connection.parse({ text, name })
    connection.bind({ statement: name, values: [...values], valueMapper: this.#mapper })
    connection.execute({})
  }

  /** The statement that is next to be answered, where the server process keeps it. */
  #next(): KeptStatement | undefined {
    return this.#named[this.tags.length]
  }

  handleCommandComplete(message: { text: string }): void {
    const kept = this.#next()
    if (kept !== undefined) kept.there = true
    this.tags.push(message.text)
  }

  handleError(error: Error): void {
    const kept = this.#next()
    const code = codeOf(error) ?? ''
    if (kept?.there !== true || !MEANS_PREPARE_AGAIN.has(code)) return this.failed(error, error)
    kept.there = false
    if (code === NO_SUCH_STATEMENT && this.#memory !== undefined) noteForgotten(this.#memory)
    this.failed(new StatementForgottenError(error.message, { cause: error }), error)
  }

  /** `error` as it is reported, and as it came. */
  protected abstract failed(error: Error, original: Error): void
  abstract handleReadyForQuery(): void

  handleRowDescription(): void {}
  handleDataRow(_message: { fields: (string | null)[] }): void {}
  handlePortalSuspended(): void {}
  handleCopyData(): void {}
  handleCopyInResponse(connection: PgProtocol): void {
    connection.sendCopyFail('There is nothing to copy from.')
  }
  handleEmptyQuery(): void {
    // It has no tag of its own.
    this.tags.push('')
  }
}

/**
 * Statements and COMMIT: where a statement fails, COMMIT is skipped. Two messages sent back to back would not do: a value that cannot
 * be written would keep the first from being sent, and COMMIT would go alone.
 */
class PgCommit extends PgMessage {
  /** The server's own word, given before it came to COMMIT: that was never run, whatever happens to the session. */
  protected override failed(failure: Error, original: Error): void {
    const unasked = this.tags.length < this.statements.length - 1 || failure instanceof StatementForgottenError
    const certain = isSqlState(original) && unasked
    const endedEarly = isEndedEarly(original)
    if (certain && !endsSession(original)) this.callback?.(null, { command: '', failure, endedEarly } satisfies Commit)
    else this.callback?.(original, undefined)
  }

  override handleReadyForQuery(): void {
    // Of a value that cannot be written: what went without COMMIT is harmless.
    const answer: Commit =
      this.unwritten === undefined ? { command: this.tags.at(-1) ?? '' } : { command: '', failure: this.unwritten }
    this.callback?.(null, answer)
  }
}

/** Statements of which the last one gives one row. Its columns are known: the server is not asked to describe them. */
class PgQuestion extends PgMessage {
  readonly columns: readonly string[]
  #fields: readonly (string | null)[] = []

  constructor(
    statements: readonly Statement[],
    columns: readonly string[],
    mapper: ValueMapper,
    memory: ConnectionMemory,
  ) {
    super(statements, mapper, memory)
    this.columns = columns
  }

  override handleDataRow({ fields }: { fields: (string | null)[] }): void {
    this.#fields = fields
  }

  protected override failed(error: Error): void {
    this.callback?.(error, undefined)
  }

  override handleReadyForQuery(): void {
    if (this.unwritten !== undefined) return this.callback?.(this.unwritten, undefined)
    const row: Record<string, string | null> = {}
    this.columns.forEach((name, place) => (row[name] = this.#fields[place] ?? null))
    const answer: StatementResult<TextRow> = { command: this.tags.at(-1) ?? '', rowCount: 1, rows: [row] }
    this.callback?.(null, [answer])
  }
}

/** Undefined where this pg takes no query of another's making. */
export function commitInOneMessage(
  client: PgClient,
  statements: readonly Statement[],
  memory: ConnectionMemory,
): PgCommit | undefined {
  if (client.pipeline === true) return undefined
  const mapper = valueMapperOf(client)
  // Who counts on nothing before it does not count on COMMIT either.
  const committing: Statement = { text: COMMIT, values: [], recurs: statements.every(({ recurs }) => recurs === true) }
  return mapper && new PgCommit([...statements, committing], mapper, memory)
}

/** Undefined where it would be no quicker than a text: behind a pooler, or where that is not known. */
export function askInOneMessage(
  client: PgClient,
  statements: readonly Statement[],
  columns: readonly string[],
  memory: ConnectionMemory,
): PgQuestion | undefined {
  if (client.pipeline === true || !canKeep(memory)) return undefined
  const mapper = valueMapperOf(client)
  return mapper && new PgQuestion(statements, columns, mapper, memory)
}
