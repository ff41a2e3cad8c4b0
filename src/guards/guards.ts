import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, LockTimeoutError } from '../errors.ts'
import { closedError } from '../locks/index.ts'
import {
  codeOf,
  type Connection,
  LOCK_NOT_AVAILABLE,
  type OwnValue,
  refuseForeignOwner,
  withConnection,
} from '../postgres/index.ts'
import { checkWaitMs, type PartSetup } from '../transactions/index.ts'
import { addGuard, listGuards, listSamples, removeGuard, ROLLBACK, setGuard } from './guards.sql.ts'
import { checkGuardMode, type GuardMode, readGuardMode } from './guardMode.ts'
import { keyTemplate } from './keyTemplate.ts'

/** Options of `guards.add()`. */
export interface AddGuardOptions {
  /** The key of a row, with columns in braces: `Account:{id}`. Without a column it is one key for the whole table. */
  readonly key: string
  /** Default `'observe'`, or the mode of the existing guard. */
  readonly mode?: GuardMode
  /** What a writer has to hold: a lock, or a lease whose `lease.transaction()` it writes in. Default `'lock'`. */
  readonly held?: 'lock' | 'lease'
  /** Why; shown with the guard. */
  readonly reason?: string
  /** How long it can wait for transactions that write to the table; writers that come later wait behind it. Default 5,000. */
  readonly waitMs?: number
}

/** Which guard of a table is meant, where it has several. */
export interface WhichGuard {
  /** The key of the guard, as it was added. */
  readonly key?: string
}

/** Options of `guards.set()`. */
export interface SetGuardOptions extends WhichGuard {
  /** Why; shown with the guard. */
  readonly reason?: string
}

/** Options of `guards.remove()`. */
export interface RemoveGuardOptions extends WhichGuard {
  /** As in `guards.add()`. Default 5,000. */
  readonly waitMs?: number
}

/** Options of `guards.samples()`. */
export interface GuardSamplesOptions extends WhichGuard {
  /** The maximum number, newest first. Default 20. */
  readonly limit?: number
}

const ADD_OPTIONS: OptionNames<AddGuardOptions> = { key: true, mode: true, held: true, reason: true, waitMs: true }
const SET_OPTIONS: OptionNames<SetGuardOptions> = { key: true, reason: true }
const REMOVE_OPTIONS: OptionNames<RemoveGuardOptions> = { key: true, waitMs: true }
const SAMPLES_OPTIONS: OptionNames<GuardSamplesOptions> = { key: true, limit: true }

const DEFAULT_WAIT_MS = 5000
const DEFAULT_SAMPLES = 20
const MAX_SAMPLES = 1000

/**
 * Whether the triggers of a guard are there: `active`; `missing` or `disabled`; `partial`, where a new partition can still be truncated;
 * `moved`, where the table has another name now; `broken`, where a column of the key is gone.
 */
export type GuardState = 'active' | 'missing' | 'disabled' | 'partial' | 'moved' | 'broken'

/** A table that can be written only under a lock. */
export interface Guard {
  readonly id: number
  /** The table with its schema. */
  readonly table: string
  readonly key: string
  readonly held: 'lock' | 'lease'
  readonly mode: GuardMode
  readonly reason: string
  readonly addedAt: Date
  readonly changedAt: Date
  readonly state: GuardState
  /** Rows that were written without the lock, since the guard was added; those of transactions that were rolled back as well. */
  readonly unlocked: number
  /** Rows whose lock was found in the server's list of locks: taken by plain SQL, or by a Lockstep of an older version. Slow, but safe. */
  readonly listed: number
  /** Statements that failed because of the guard. */
  readonly refused: number
}

/** A write without the lock. */
export interface GuardSample {
  readonly at: Date
  readonly operation: string
  /** Undefined: TRUNCATE. */
  readonly key: string | undefined
  readonly application: string
  /** The role that logged in. */
  readonly role: string
  /** How the client's statement begins, without its literals. */
  readonly query: string
}

/** SQLSTATEs by which the server says that the table, a column or its type is not what the caller takes it for. */
const WRONG_TABLE: ReadonlySet<string> = new Set([
  '42P01',
  '3F000',
  '42703',
  '42804',
  '42809',
  '42602',
  '42601',
  '0A000',
])

/** Guards of tables: add, list, change and remove them. */
export class Guards {
  readonly #setup: PartSetup
  #trusted = false

  /** @internal */
  constructor(setup: PartSetup) {
    this.#setup = setup
  }

  /**
   * Ties a table to a key: from then on the database looks, for every row that is written, whether the transaction holds that lock. A guard
   * that exists is repaired. The connection's role must own Lockstep's schema and have TRIGGER on the table.
   *
   * @example
   * await lockstep.guards.add('accounts', { key: 'Account:{id}' })
   */
  async add(table: string, options: AddGuardOptions): Promise<Guard> {
    checkOptions('guards.add()', options, ADD_OPTIONS)
    const template = keyTemplate(options.key)
    const { held = 'lock', reason = '' } = options
    if (held !== 'lock' && held !== 'lease')
      throw new InvalidOptionError(`\`held\` is ${JSON.stringify(held)}.`, { advice: "Use 'lock' or 'lease'." })
    const stored = options.mode === undefined ? { mode: null, percent: null } : checkGuardMode(options.mode)
    const wanted = { table: checkTable(table), template, held, reason, ...stored }
    const waitMs = waitOf(options.waitMs)
    const id = await this.#change(addGuard(this.#setup.quotedSchema, wanted, waitMs), table, waitMs)
    const added = (await this.list()).find((each) => each.id === id)
    if (added === undefined) throw noGuard(table)
    return added
  }

  /** All guards, with what they have counted. */
  async list(): Promise<readonly Guard[]> {
    const { rows } = await this.#ask(listGuards(this.#setup.quotedSchema))
    return (rows as unknown as GuardRow[]).map((row) => ({
      id: Number(row.id),
      table: row.relation,
      key: row.key,
      held: row.held,
      mode: readGuardMode(row.mode, row.percent),
      reason: row.reason,
      addedAt: new Date(row.added),
      changedAt: new Date(row.changed),
      state: row.state,
      unlocked: Number(row.unlocked),
      listed: Number(row.listed),
      refused: Number(row.refused),
    }))
  }

  /** Who wrote to a table without the lock: the newest first, of one week. */
  async samples(table: string, options: GuardSamplesOptions = {}): Promise<readonly GuardSample[]> {
    checkOptions('guards.samples()', options, SAMPLES_OPTIONS)
    const { limit = DEFAULT_SAMPLES } = options
    if (!Number.isInteger(limit) || limit < 1 || limit > MAX_SAMPLES) {
      throw new InvalidOptionError(`limit is ${String(limit)}.`, { advice: `Use 1 to ${MAX_SAMPLES}.` })
    }
    const { id } = await this.#find(table, options)
    const { rows } = await this.#ask(listSamples(this.#setup.quotedSchema), [String(id), String(limit)])
    return (rows as unknown as SampleRow[]).map((row) => ({
      at: new Date(row.at),
      operation: row.operation,
      key: row.key ?? undefined,
      application: row.application,
      role: row.role,
      query: row.query,
    }))
  }

  /**
   * Sets the mode of a guard. Every session follows it with its next statement.
   *
   * @example
   * await lockstep.guards.set('accounts', { percent: 10 }, { reason: 'one key in ten' })
   */
  async set(table: string, mode: GuardMode, options: SetGuardOptions = {}): Promise<void> {
    checkOptions('guards.set()', options, SET_OPTIONS)
    const stored = checkGuardMode(mode)
    const { id } = await this.#find(table, options)
    const percent = stored.percent === null ? null : String(stored.percent)
    const values = [String(id), stored.mode, percent, options.reason ?? '']
    const { rowCount } = await this.#ask(setGuard(this.#setup.quotedSchema), values)
    if (rowCount === 0) throw noGuard(table)
  }

  /** Removes a guard with its triggers, counts and samples. The connection's role must own Lockstep's schema and the table. */
  async remove(table: string, options: RemoveGuardOptions = {}): Promise<void> {
    checkOptions('guards.remove()', options, REMOVE_OPTIONS)
    const waitMs = waitOf(options.waitMs)
    const { id } = await this.#find(table, options)
    await this.#change(removeGuard(this.#setup.quotedSchema, id, waitMs), table, waitMs)
  }

  /** The guard of a table. Its name with the schema, or without where only one table of that name has a guard. */
  async #find(table: string, { key }: WhichGuard): Promise<Guard> {
    const name = checkTable(table)
    const guards = await this.list()
    const names = new Set([name, name.toLowerCase()])
    const whole = guards.filter((each) => names.has(each.table))
    const named = whole.length > 0 ? whole : guards.filter((each) => names.has(withoutSchema(each.table)))
    const found = key === undefined ? named : named.filter((each) => each.key === key)
    const [guard, another] = found
    if (guard === undefined) throw noGuard(key === undefined ? table : `${table} with the key ${key}`)
    if (another === undefined) return guard
    throw new InvalidOptionError(`${table} has several guards.`, {
      advice: `Name its schema and \`key\`: ${found.map((each) => `${each.table} ${each.key}`).join(', ')}.`,
    })
  }

  async #ask(text: string, values?: readonly OwnValue[]): ReturnType<Connection['read']> {
    const { driver, silence } = this.#setup
    return withConnection(driver, async (connection) => (await this.#trust(connection)).read(text, values), silence)
  }

  /** The id that the statement answers, if it does. */
  async #change(text: string, table: string, waitMs: number): Promise<number | undefined> {
    // Without the watch of silent connections: a change waits for its locks, for longer than an answer takes.
    return withConnection(this.#setup.driver, async (connection) => {
      await this.#trust(connection)
      try {
        const results = await connection.script(text)
        const id = results.find((result) => result.rows[0]?.['id'] !== undefined)?.rows[0]?.['id']
        return id === undefined ? undefined : Number(id)
      } catch (error) {
        if (!connection.lost) await connection.script(ROLLBACK)
        const code = codeOf(error) ?? ''
        if (code === LOCK_NOT_AVAILABLE) throw tableBusy(table, waitMs, error)
        if (WRONG_TABLE.has(code)) {
          const { message, hint } = error as Error & { hint?: unknown }
          throw new InvalidOptionError(`The guard of ${table} was not changed: ${message}.`, {
            advice: typeof hint === 'string' ? hint : 'Name a table and columns of it, as in SQL.',
            cause: error,
          })
        }
        throw error
      }
    })
  }

  /** Guards are listed before anything else has looked whose schema it is. */
  async #trust(connection: Connection): Promise<Connection> {
    if (this.#setup.closing.closed) throw closedError()
    if (!this.#trusted) await refuseForeignOwner(connection, this.#setup.schema)
    this.#trusted = true
    return connection
  }
}

interface GuardRow {
  readonly id: string
  readonly relation: string
  readonly key: string
  readonly held: 'lock' | 'lease'
  readonly mode: string
  readonly percent: string | null
  readonly reason: string
  readonly added: string
  readonly changed: string
  readonly unlocked: string
  readonly listed: string
  readonly refused: string
  readonly state: GuardState
}

interface SampleRow {
  readonly at: string
  readonly operation: string
  readonly key: string | null
  readonly application: string
  readonly role: string
  readonly query: string
}

function checkTable(table: unknown): string {
  if (typeof table === 'string' && table !== '' && !table.includes('\0')) return table
  throw new InvalidOptionError(`${JSON.stringify(table)} names no table.`, {
    advice: "Name it as in SQL: 'accounts', 'sales.orders' or '\"Accounts\"'.",
  })
}

function waitOf(given: number | undefined): number {
  const waitMs = checkWaitMs(given, DEFAULT_WAIT_MS)
  if (waitMs !== false) return waitMs
  throw new InvalidOptionError('waitMs is false.', { advice: 'Writers wait behind it: set a limit.' })
}

/** `public.accounts` is `accounts`. A dot inside of quotes belongs to the name. */
function withoutSchema(table: string): string {
  return table.replace(/^(?:"(?:[^"]|"")*"|[^".]+)\./, '')
}

function noGuard(table: string): InvalidOptionError {
  return new InvalidOptionError(`There is no guard of ${table}.`, { advice: 'guards.list() has them all.' })
}

function tableBusy(table: string, waitMs: number, cause: unknown): LockTimeoutError {
  return new LockTimeoutError(`The table ${table} was in use for longer than ${waitMs} ms.`, {
    advice: 'Nothing was changed. Try again when no long transaction writes to it, or give a longer `waitMs`.',
    cause,
    waitedMs: waitMs,
    waitedFor: 'server',
    holders: [],
  })
}
