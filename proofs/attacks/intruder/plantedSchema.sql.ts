/** What a role plants that can create schemas in the database, and waits for. */

export const MALLORY = 'intruder_mallory'

export const CREATE_MALLORY = `
  DROP ROLE IF EXISTS ${MALLORY}; CREATE ROLE ${MALLORY} LOGIN NOSUPERUSER; GRANT CREATE ON DATABASE postgres TO ${MALLORY}`

export const DROP_MALLORY = `DROP OWNED BY ${MALLORY}; DROP ROLE ${MALLORY}`

export const IS_SUPERUSER = `SELECT rolsuper AS super FROM pg_roles WHERE rolname = '${MALLORY}'`
export const NO_SUPERUSER = `ALTER ROLE ${MALLORY} NOSUPERUSER`

/** Code that makes its author a superuser where one runs it. */
function evil(schema: string): string {
  return `
    CREATE FUNCTION ${schema}.evil() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN ALTER ROLE ${MALLORY} SUPERUSER; RETURN true; END';
    CREATE FUNCTION ${schema}.evil_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN ALTER ROLE ${MALLORY} SUPERUSER; RETURN NEW; END'`
}

const MIGRATIONS = `(version integer PRIMARY KEY, name text NOT NULL, compatible_from integer NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`

/** Ways in which a schema can be waiting for its first migration, by what they are. `owned`: the schema is the migrator's own. */
export const PLANTS: Readonly<Record<string, { readonly owned?: true; readonly plant: (schema: string) => string }>> = {
  'a trigger on the table of migrations': {
    plant: (schema) => `CREATE SCHEMA ${schema}; ${evil(schema)}; CREATE TABLE ${schema}.migrations ${MIGRATIONS};
      CREATE TRIGGER t BEFORE INSERT ON ${schema}.migrations FOR EACH ROW EXECUTE FUNCTION ${schema}.evil_trigger()`,
  },
  'a view in place of the table of migrations': {
    plant: (schema) => `CREATE SCHEMA ${schema}; ${evil(schema)};
      CREATE VIEW ${schema}.migrations AS SELECT 0 AS version, ''::text AS name, 0 AS compatible_from WHERE ${schema}.evil()`,
  },
  'a default on the table of migrations': {
    plant: (schema) => `CREATE SCHEMA ${schema}; ${evil(schema)};
      CREATE TABLE ${schema}.migrations (version integer PRIMARY KEY, name text, compatible_from integer, more boolean DEFAULT ${schema}.evil())`,
  },
  'a row security policy on the table of migrations': {
    plant: (schema) => `CREATE SCHEMA ${schema}; ${evil(schema)}; CREATE TABLE ${schema}.migrations ${MIGRATIONS};
      CREATE POLICY p ON ${schema}.migrations USING (${schema}.evil()); ALTER TABLE ${schema}.migrations ENABLE ROW LEVEL SECURITY`,
  },
  'a function that tells the version': {
    plant: (schema) => `CREATE SCHEMA ${schema}; ${evil(schema)};
      CREATE FUNCTION ${schema}.schema_version(OUT version integer, OUT compatible_from integer) LANGUAGE sql AS 'SELECT ${schema}.evil()::int, 1'`,
  },
  'an empty schema': { plant: (schema) => `CREATE SCHEMA ${schema}` },
  'a trigger on the table of migrations, in a schema of the migrator': {
    owned: true,
    plant: (schema) => `${evil(schema)}; CREATE TABLE ${schema}.migrations ${MIGRATIONS};
      CREATE TRIGGER t BEFORE INSERT ON ${schema}.migrations FOR EACH ROW EXECUTE FUNCTION ${schema}.evil_trigger()`,
  },
  'a function with a name of ours, in a schema of the migrator': {
    owned: true,
    plant: (schema) =>
      `${evil(schema)}; CREATE FUNCTION ${schema}.lock_id(domain varchar, key varchar) RETURNS bigint LANGUAGE sql AS 'SELECT ${schema}.evil()::int::bigint'`,
  },
}

export function ownSchema(schema: string): string {
  return `CREATE SCHEMA ${schema}; GRANT USAGE, CREATE ON SCHEMA ${schema} TO ${MALLORY}`
}

/** What a migration that trusts the schema does first. */
export function naiveMigration(schema: string): string {
  return `
    CREATE SCHEMA IF NOT EXISTS ${schema};
    CREATE TABLE IF NOT EXISTS ${schema}.migrations ${MIGRATIONS};
    SELECT max(version) FROM ${schema}.migrations;
    INSERT INTO ${schema}.migrations (version, name, compatible_from) VALUES (1, 'lock_ids', 1)`
}

export function dropPlanted(schema: string): string {
  return `DROP SCHEMA IF EXISTS ${schema} CASCADE`
}
