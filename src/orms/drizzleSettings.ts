import {
  createTableRelationsHelpers,
  DefaultLogger,
  type DrizzleConfig,
  extractTablesRelationalConfig,
  type ExtractTablesWithRelations,
  type Logger,
  NoopLogger,
  type RelationalSchemaConfig,
} from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { privateField } from './ormTransaction.ts'

/**
 * What `drizzle(tx, options)` takes: as Drizzle's own `drizzle()`, without its cache. What is read under a lock is read from the database.
 */
export interface DrizzleOptions<Schema extends Record<string, unknown> = Record<string, never>> {
  /** The tables and relations, for `db.query`. */
  readonly schema?: Schema
  readonly casing?: NonNullable<DrizzleConfig['casing']>
  readonly logger?: boolean | Logger
}

const DRIZZLE_OPTIONS: OptionNames<DrizzleOptions> = { schema: true, casing: true, logger: true }

/** The same in the terms of Drizzle's classes, for all transactions with these options. */
export interface DrizzleSettings<Schema extends Record<string, unknown>> {
  readonly dialect: PgDialect
  readonly relations: RelationalSchemaConfig<ExtractTablesWithRelations<Schema>> | undefined
  readonly logger: Logger
}

/** Reading the relations of a schema takes longer than a transaction: it is done once for each schema. */
const relationsOf = new WeakMap<object, object>()
const dialects = new Map<DrizzleConfig['casing'], PgDialect>()

export function drizzleSettings<Schema extends Record<string, unknown>>(
  options: DrizzleOptions<Schema>,
): DrizzleSettings<Schema> {
  checkOptions('drizzle()', options, DRIZZLE_OPTIONS)
  const { schema, casing, logger } = options
  let dialect = dialects.get(casing)
  if (dialect === undefined) dialects.set(casing, (dialect = new PgDialect(casing === undefined ? {} : { casing })))
  return { dialect, relations: schema && readRelations(schema), logger: loggerOf(logger) }
}

function readRelations<Schema extends Record<string, unknown>>(
  fullSchema: Schema,
): RelationalSchemaConfig<ExtractTablesWithRelations<Schema>> {
  type Relations = RelationalSchemaConfig<ExtractTablesWithRelations<Schema>>
  const known = relationsOf.get(fullSchema)
  if (known !== undefined) return known as Relations
  const { tables, tableNamesMap } = extractTablesRelationalConfig<ExtractTablesWithRelations<Schema>>(
    fullSchema,
    createTableRelationsHelpers,
  )
  const relations: Relations = { fullSchema, schema: tables, tableNamesMap }
  relationsOf.set(fullSchema, relations)
  return relations
}

function loggerOf(logger: boolean | Logger | undefined): Logger {
  if (logger === true) return new DefaultLogger()
  return logger === undefined || logger === false ? new NoopLogger() : logger
}

/** A transaction of Drizzle, whatever its schema is. */
export interface SessionHolder {
  readonly _: { readonly session: object }
}

/** Drizzle publishes the session of a transaction, but not the session's client. */
export function clientOfSession(transaction: SessionHolder, driver: string): object {
  const { session } = (transaction as { _?: { session?: { client?: object } } })._ ?? {}
  return privateField(session?.client, {
    of: 'The transaction that clientOf() was given',
    path: '_.session.client',
    versions: `drizzle-orm 0.45 on ${driver}`,
  })
}
