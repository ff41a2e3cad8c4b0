import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { EventInvalidError, InvalidOptionError, LockTimeoutError } from '../errors.ts'
import { codeOf, type Connection, LOCK_NOT_AVAILABLE, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { checkNumber } from './checkNumber.ts'
import { audited, checkReason, type OperatorOptions } from './operatorOptions.ts'
import {
  beginImport,
  COMMIT,
  copyImport,
  cutImport,
  finishImport,
  type ImportDefinition,
  type ImportTemplate,
  importState,
  planImport,
  previewImport,
  ROLLBACK,
  verifyImport,
} from './importTable.sql.ts'

/** What `outbox.import()` takes: how rows of an outbox table of yours become events. */
export interface ImportOptions extends OperatorOptions {
  /** Text with columns in braces: `'orders'`, `'{aggregatetype}'`, `'shop.{aggregatetype}'`. */
  readonly topic: string
  /** The same: `'{aggregateid}'`. */
  readonly key: string
  /** The column by which the old relay sorts, usually a sequence. */
  readonly order: string
  /** A column that is unique and not null. Default: the one of `order`. */
  readonly id?: string
  /** The column of the payload: json, jsonb, text that is JSON, or bytea. Default `payload`. */
  readonly payload?: string
  /** The column of the headers: json or jsonb, an object of text. Default: none. */
  readonly headers?: string
  /** The column that marks rows as sent: null or false means not sent. Default: none, all rows are pending. */
  readonly sent?: string
  /** Reports what it would import, and changes nothing. Default false. */
  readonly preview?: boolean
  /** How long the cut waits for open transactions that write to the table; writers wait behind it. Default 5,000. */
  readonly waitMs?: number
  /** Ends it after a step. Call it again to continue. */
  readonly signal?: AbortSignal
  /** Called after each step. */
  readonly onProgress?: (progress: ImportProgress) => void
}

export interface ImportProgress {
  readonly planned: number
  readonly left: number
}

/** How far the import of a table is. */
export interface Imported {
  /** With its schema. */
  readonly table: string
  /** `preview`: nothing was done. `copying`: it was ended by its signal. `active`: every new row becomes an event, by the trigger. */
  readonly state: 'preview' | 'copying' | 'active'
  /** Pending rows that are not planned yet; counted in a preview. */
  readonly pending: number
  readonly copied: number
  /** Rows that were planned, and were deleted or marked as sent before they were copied. */
  readonly gone: number
  readonly streams: number
  /** Pending rows that the outbox would refuse, in a preview, and the ids of some. */
  readonly refused: number
  readonly refusedIds: readonly string[]
  /** Copied rows whose event is not in the outbox. Anything but 0 is a fault: report it. */
  readonly missing: number
  /** Copied rows that were committed after a row of their key with a larger number. */
  readonly late: number
  /** Copied rows that were deleted or marked as sent afterwards: the old relay may still run. */
  readonly sentSince: number
}

/** What `outbox.finishImport()` takes. */
export interface FinishImportOptions extends OperatorOptions {
  readonly reason: string
  /** As in `import()`. Default 5,000. */
  readonly waitMs?: number
}

const IMPORT_OPTIONS: OptionNames<ImportOptions> = {
  topic: true,
  key: true,
  order: true,
  id: true,
  payload: true,
  headers: true,
  sent: true,
  preview: true,
  waitMs: true,
  signal: true,
  onProgress: true,
  reason: true,
  by: true,
}

const FINISH_OPTIONS: OptionNames<FinishImportOptions> = { reason: true, by: true, waitMs: true }

/** Rows in one transaction, and what writers wait for at the cut. */
const STEP = 1000
/** Writers that are faster than the copy are not caught up with. */
const MOST_PASSES = 1000
const DEFAULT_WAIT_MS = 5000
const LONGEST_WAIT_MS = 600_000
const COLUMN = /\{([^{}]*)\}/

/** SQLSTATEs by which the server says that the table, a column or its type is not what the caller takes it for. */
const WRONG_TABLE: ReadonlySet<string> = new Set([
  '42P01',
  '3F000',
  '42703',
  '42804',
  '42809',
  '42602',
  '42601',
  '22023',
  '55006',
])

interface StateRow {
  readonly id: string
  readonly relation: string
  readonly planned: string
  readonly copied: string
  readonly gone: string
  readonly cut: string
  readonly active: string
}

/** docs/decisions/0057-import.md has the protocol. */
export async function importTable(context: LockstepContext, table: string, options: ImportOptions): Promise<Imported> {
  checkOptions('outbox.import()', options, IMPORT_OPTIONS)
  checkTable(table)
  const definition = definitionOf(options)
  const { preview = false, waitMs = DEFAULT_WAIT_MS } = options
  checkNumber('waitMs', waitMs, 1, LONGEST_WAIT_MS)
  if (!preview) checkReason('import', options.reason)
  const who = audited(options)
  await context.ready()
  // Without the watch of silent connections: a statement reads a whole table.
  return withConnection(context.driver, async (connection) => {
    const asked = new Asked(connection, context.quotedSchema, table)
    if (preview) return asked.preview(definition)
    const id = Number(await asked.value(beginImport(context.quotedSchema, table, definition, who)))
    if (!(await asked.copyAll(id, definition, { ...options, waitMs }))) return asked.report(id, 'copying')
    return asked.report(id, 'active')
  })
}

export async function endImport(context: LockstepContext, table: string, options: FinishImportOptions): Promise<void> {
  checkOptions('outbox.finishImport()', options, FINISH_OPTIONS)
  checkTable(table)
  checkReason('finishImport', options.reason)
  const { waitMs = DEFAULT_WAIT_MS } = options
  checkNumber('waitMs', waitMs, 1, LONGEST_WAIT_MS)
  const who = audited(options)
  await context.ready()
  await withConnection(context.driver, async (connection) => {
    const asked = new Asked(connection, context.quotedSchema, table)
    const state = await asked.state()
    if (state === undefined) {
      throw new InvalidOptionError(`There is no import of ${table} that could be finished.`, {
        advice: 'Name the table as it was called when the import began, with its schema.',
      })
    }
    await asked.value(finishImport(context.quotedSchema, Number(state.id), who, waitMs))
  })
}

/** One import on one connection. */
class Asked {
  readonly #connection: Connection
  readonly #schema: string
  readonly #table: string

  constructor(connection: Connection, schema: string, table: string) {
    this.#connection = connection
    this.#schema = schema
    this.#table = table
  }

  async rows(text: string): Promise<Record<string, string | null>[]> {
    try {
      const results = await this.#connection.script(text)
      return results.find(({ rows }) => rows.length > 0)?.rows ?? []
    } catch (error) {
      if (!this.#connection.lost) await this.#connection.script(ROLLBACK)
      throw this.#explained(error)
    }
  }

  async value(text: string): Promise<string | null | undefined> {
    return Object.values((await this.rows(text))[0] ?? {})[0]
  }

  #explained(error: unknown): unknown {
    const code = codeOf(error) ?? ''
    if (code === LOCK_NOT_AVAILABLE) {
      return new LockTimeoutError(`The table ${this.#table} was in use for longer than the import waits.`, {
        advice:
          'What was copied stays copied. Call it again when no long transaction writes to the table, or give a longer `waitMs`.',
        cause: error,
        waitedMs: 0,
        waitedFor: 'server',
        holders: [],
      })
    }
    if (!WRONG_TABLE.has(code)) return error
    const { message, hint } = error as Error & { hint?: unknown }
    return new InvalidOptionError(`${this.#table} cannot be imported: ${message}.`, {
      advice: typeof hint === 'string' && hint !== '' ? hint : 'Name a table and columns of it, as in SQL.',
      cause: error,
    })
  }

  async state(): Promise<StateRow | undefined> {
    return (await this.rows(importState(this.#schema, this.#table)))[0] as unknown as StateRow | undefined
  }

  async preview(definition: ImportDefinition): Promise<Imported> {
    const state = await this.state()
    const [found] = await this.rows(previewImport(this.#schema, this.#table, definition, Number(state?.id ?? 0)))
    return {
      table: found?.['relation'] ?? this.#table,
      state: 'preview',
      pending: Number(found?.['pending_rows']),
      copied: Number(state?.copied ?? 0) - Number(state?.gone ?? 0),
      gone: Number(state?.gone ?? 0),
      streams: Number(found?.['streams']),
      refused: Number(found?.['refused']),
      refusedIds: JSON.parse(found?.['refused_ids'] ?? '[]') as string[],
      missing: 0,
      late: 0,
      sentSince: 0,
    }
  }

  /** Plans and copies until little is left, then cuts. False: the signal has ended it. */
  async copyAll(
    id: number,
    definition: ImportDefinition,
    { signal, onProgress, waitMs }: ImportOptions & { readonly waitMs: number },
  ): Promise<boolean> {
    const aborted = (): boolean => signal?.aborted ?? false
    for (let pass = 1; pass <= MOST_PASSES; pass++) {
      const state = await this.state()
      if (state?.cut === 'true') return this.#checkActive(state)
      const planned = Number(await this.value(planImport(this.#schema, id)))
      for (let left = planned; left > 0 && !aborted();) {
        left = Number(await this.#copied(copyImport(this.#schema, id, STEP), definition))
        onProgress?.({ planned, left })
      }
      if (aborted()) return false
      // As soon as a plan was small, the next one will be as well.
      if (planned <= STEP && (await this.#cut(id, definition, waitMs))) return true
    }
    throw new InvalidOptionError(`${this.#table} gets rows faster than they can be imported.`, {
      advice: 'What was copied stays copied. Call it again when fewer rows are written.',
    })
  }

  async #cut(id: number, definition: ImportDefinition, waitMs: number): Promise<boolean> {
    const cut = (await this.#copied(cutImport(this.#schema, id, STEP, waitMs), definition)) === 'true'
    await this.rows(cut ? COMMIT : ROLLBACK)
    return cut
  }

  /** A row that the outbox refuses stops the import: it says which. */
  async #copied(text: string, definition: ImportDefinition): Promise<string | null | undefined> {
    try {
      return await this.value(text)
    } catch (error) {
      const code = codeOf(error instanceof InvalidOptionError ? error.cause : error) ?? ''
      if (!code.startsWith('22') && !code.startsWith('54')) throw error
      const [found] = await this.rows(previewImport(this.#schema, this.#table, definition, 0))
      const ids = (JSON.parse(found?.['refused_ids'] ?? '[]') as string[]).join(', ')
      throw new EventInvalidError(`The outbox refuses rows of ${this.#table}, with the ids ${ids}: ${String(error)}`, {
        advice: 'Correct them, mark them as sent, or delete them. Then call it again: it goes on where it was.',
        cause: error,
      })
    }
  }

  #checkActive({ active }: StateRow): true {
    if (active === 'true') return true
    throw new InvalidOptionError(`The trigger of the import of ${this.#table} is gone or disabled.`, {
      advice:
        'Rows that were written since have no event. Finish the import, then begin a new one with the rows that are pending.',
    })
  }

  async report(id: number, state: 'copying' | 'active'): Promise<Imported> {
    const row = (await this.state()) as StateRow
    const [verified] = await this.rows(verifyImport(this.#schema, id))
    return {
      table: row.relation,
      state,
      pending: Number(row.planned) - Number(row.copied),
      copied: Number(row.copied) - Number(row.gone),
      gone: Number(row.gone),
      streams: Number(verified?.['streams']),
      refused: 0,
      refusedIds: [],
      missing: Number(verified?.['missing']),
      late: Number(verified?.['late']),
      sentSince: Number(verified?.['sent']),
    }
  }
}

function definitionOf(options: ImportOptions): ImportDefinition {
  const { order, id = order, payload = 'payload', headers = null, sent = null } = options
  for (const [name, value] of Object.entries({ order, id, payload, headers, sent })) {
    if (value === null && (name === 'headers' || name === 'sent')) continue
    if (typeof value === 'string' && value !== '' && !value.includes('\0')) continue
    throw new InvalidOptionError(`\`${name}\` is ${JSON.stringify(value) ?? 'missing'}.`, {
      advice: 'Name a column of the table, without quotes.',
    })
  }
  return {
    topic: templateOf('topic', options.topic),
    key: templateOf('key', options.key),
    order,
    id,
    payload,
    headers,
    sent,
  }
}

/** Text with columns in braces. */
function templateOf(name: string, text: unknown): ImportTemplate {
  const pieces = typeof text === 'string' && !text.includes('\0') ? text.split(COLUMN) : ['']
  const literals = pieces.filter((_, place) => place % 2 === 0)
  const columns = pieces.filter((_, place) => place % 2 === 1)
  if (text !== '' && pieces.join('') !== '' && !literals.some((each) => /[{}]/.test(each)) && !columns.includes('')) {
    return { literals, columns }
  }
  throw new InvalidOptionError(`\`${name}\` is ${JSON.stringify(text) ?? 'missing'}.`, {
    advice: "Write text, with columns in braces: 'orders', '{aggregatetype}' or 'shop.{aggregatetype}'.",
  })
}

function checkTable(table: unknown): void {
  if (typeof table === 'string' && table !== '' && !table.includes('\0')) return
  throw new InvalidOptionError(`${JSON.stringify(table)} names no table.`, {
    advice: "Name it as in SQL: 'outbox_event', 'sales.outbox' or '\"Outbox\"'.",
  })
}
