import { quoteLiteral } from '../postgres/index.ts'
import type { Audited } from './outbox.sql.ts'

/** The SQL of the import of a table. The cast to regclass finds it in the search_path of the session, as every statement of the caller does. */

export interface ImportTemplate {
  /** What is around the columns: one more than there are columns. */
  readonly literals: readonly string[]
  readonly columns: readonly string[]
}

/** As `outbox_imports` keeps it. */
export interface ImportDefinition {
  readonly topic: ImportTemplate
  readonly key: ImportTemplate
  readonly order: string
  readonly id: string
  readonly payload: string
  readonly headers: string | null
  readonly sent: string | null
}

export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'

const relation = (table: string): string => `${quoteLiteral(table)}::regclass`
const json = (definition: ImportDefinition): string => `${quoteLiteral(JSON.stringify(definition))}::jsonb`
const literal = (value: string | undefined): string => (value === undefined ? 'NULL' : quoteLiteral(value))

function alone(statement: string, by?: string): string {
  const who = by === undefined ? '' : `SET LOCAL lockstep.by = ${quoteLiteral(by)}; `
  return `BEGIN ISOLATION LEVEL READ COMMITTED; ${who}${statement}; COMMIT`
}

/** Its name as it is in the table of imports. A table that is gone has the name that was given. */
function nameOf(table: string): string {
  return `COALESCE((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                     WHERE c.oid = to_regclass(${quoteLiteral(table)})), ${quoteLiteral(table)})`
}

export function importState(schema: string, table: string): string {
  return `SELECT id::text AS id, relation, planned::text AS planned, copied::text AS copied, gone::text AS gone,
                 (cut_at IS NOT NULL)::text AS cut, active::text AS active FROM ${schema}.outbox_import_state(${nameOf(table)})`
}

export function previewImport(schema: string, table: string, definition: ImportDefinition, id: number): string {
  return `SELECT ${nameOf(table)} AS relation, p.pending_rows::text AS pending_rows, p.streams::text AS streams, p.refused::text AS refused,
                 array_to_json(p.refused_ids)::text AS refused_ids
            FROM ${schema}.outbox_import_preview(${relation(table)}, ${json(definition)}, ${id}) AS p`
}

export function beginImport(
  schema: string,
  table: string,
  definition: ImportDefinition,
  { reason, by }: Audited,
): string {
  const given = `${relation(table)}, ${json(definition)}, ${literal(reason)}`
  return alone(`SELECT ${schema}.outbox_import_begin(${given})::text AS id`, by)
}

export function planImport(schema: string, id: number): string {
  return alone(`SELECT ${schema}.outbox_import_plan(${id})::text AS planned`)
}

export function copyImport(schema: string, id: number, step: number): string {
  return alone(`SELECT ${schema}.outbox_import_copy(${id}, ${step})::text AS remaining`)
}

/** Not ended: the caller commits, or rolls back where too much is left. */
export function cutImport(schema: string, id: number, step: number, waitMs: number): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = ${waitMs};
    SELECT ${schema}.outbox_import_cut(${id}, ${step})::text AS cut`
}

export function finishImport(schema: string, id: number, { reason, by }: Audited, waitMs: number): string {
  return alone(
    `SET LOCAL lock_timeout = ${waitMs}; SELECT ${schema}.outbox_import_finish(${id}, ${literal(reason)})`,
    by,
  )
}

export function verifyImport(schema: string, id: number): string {
  return `SELECT v.streams::text AS streams, v.missing::text AS missing, v.late::text AS late, v.sent::text AS sent
            FROM ${schema}.outbox_import_verify(${id}) AS v`
}
