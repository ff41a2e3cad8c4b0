/** What an intruder looks up and tries. Names of schemas and objects arrive here quoted. */

/** Everything in a schema that a role could use, from the catalogs. */
export const OBJECTS = `
  SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END AS kind, format('%I.%I', n.nspname, c.relname) AS name,
         (SELECT quote_ident(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             AND a.attidentity = '' AND a.attgenerated = '' ORDER BY a.attnum LIMIT 1) AS first, NULL AS types, c.relname::text AS plain
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  UNION ALL
  SELECT 'function', format('%I.%I', n.nspname, p.proname), NULL,
         ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS g(t, place) ORDER BY g.place), p.proname::text
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
   WHERE n.nspname = $1
   ORDER BY 1, 2`

export interface ObjectRow {
  readonly kind: 'table' | 'sequence' | 'function'
  readonly name: string
  readonly first: string | null
  readonly types: readonly string[] | null
  readonly plain: string
}

/** All that can be done with a table or a view. */
export function tableAttempts({ name, first }: ObjectRow): string[] {
  return [
    `SELECT FROM ${name} LIMIT 0`,
    `SELECT ${first} FROM ${name} LIMIT 0`,
    `INSERT INTO ${name} DEFAULT VALUES`,
    `UPDATE ${name} SET ${first} = NULL WHERE false`,
    `DELETE FROM ${name} WHERE false`,
    `TRUNCATE ${name}`,
    `LOCK TABLE ${name} IN ACCESS EXCLUSIVE MODE`,
    `ALTER TABLE ${name} ADD COLUMN intruder int`,
    `CREATE TRIGGER intruder BEFORE INSERT ON ${name} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
    `COPY ${name} TO STDOUT`,
  ]
}

export function sequenceAttempts({ name }: ObjectRow): string[] {
  return [
    `SELECT last_value FROM ${name}`,
    `SELECT nextval('${name}')`,
    `SELECT setval('${name}', 1)`,
    `ALTER SEQUENCE ${name} RESTART`,
  ]
}

/** Things that only an owner can do, whatever the object. */
export function schemaAttempts(schema: string): string[] {
  return [
    `CREATE TABLE ${schema}.intruder ()`,
    `CREATE FUNCTION ${schema}.enqueue(topic varchar, key varchar, payload varchar) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'`,
    `CREATE OR REPLACE FUNCTION ${schema}.lock_id(domain text, key text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'`,
    `ALTER FUNCTION ${schema}.lock_id(text, text) OWNER TO CURRENT_USER`,
    `DROP FUNCTION ${schema}.lock_id(text, text)`,
    `ALTER SCHEMA ${schema} RENAME TO intruder`,
    `DROP SCHEMA ${schema} CASCADE`,
  ]
}

/** Calls a function with nulls that the planner does not see: it would leave out the call of a strict one, and with it the refusal. */
export function callWithNulls({ name, types }: ObjectRow): string {
  const columns = (types ?? []).map((type, place) => `NULL::${type} AS a${place}`)
  const given = columns.map((_, place) => `x.a${place}`)
  return `SELECT ${name}(${given.join(', ')}) FROM (SELECT ${['1', ...columns].join(', ')} OFFSET 0) AS x`
}

/** Each attempt is undone. It ends soon, whatever it meets. */
export const BEGIN_ATTEMPT = `BEGIN; SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '2s'`
export const END_ATTEMPT = 'ROLLBACK'

export function createRole(name: string): string {
  return `DROP ROLE IF EXISTS ${name}; CREATE ROLE ${name} LOGIN NOSUPERUSER`
}

export function dropRole(name: string): string {
  return `DROP OWNED BY ${name}; DROP ROLE ${name}`
}

export function dropSchema(schema: string): string {
  return `DROP SCHEMA IF EXISTS ${schema} CASCADE`
}

/** The grants that the documentation once listed, and more of the kind. */
export function grantTables(schema: string, role: string): string {
  return `GRANT USAGE ON SCHEMA ${schema} TO ${role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`
}

/** A function that a migration forgot to take from the public. */
export function forgottenFunction(schema: string): string {
  return `CREATE FUNCTION ${schema}.forgotten() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT 1::bigint'`
}

export function dropForgotten(schema: string): string {
  return `DROP FUNCTION ${schema}.forgotten()`
}
