import { quoteLiteral } from './identifiers.ts'

/** Grants. Names of schemas and roles arrive here already quoted; those of functions are ours. */

/** Fails where the role owns the schema or something in it: revoking would take its own rights away, and those of functions that run with them. */
function refuseOwner(schema: string, role: string): string {
  const owner = `${quoteLiteral(role)}::pg_catalog.regrole::pg_catalog.oid`
  const space = `${quoteLiteral(schema)}::pg_catalog.regnamespace::pg_catalog.oid`
  const same = 'OPERATOR(pg_catalog.=)'
  const body = `
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE oid ${same} ${space} AND nspowner ${same} ${owner})
     OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace ${same} ${space} AND relowner ${same} ${owner})
     OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace ${same} ${space} AND proowner ${same} ${owner}) THEN
    RAISE EXCEPTION 'the role % owns the schema %, or something in it', ${quoteLiteral(role)}, ${quoteLiteral(schema)}
      USING ERRCODE = 'invalid_grant_operation', HINT = 'An owner needs no grants. Name the role that the application connects as.';
  END IF;
END
`
  // A role may have any name.
  let tag = '$do$'
  for (let n = 1; body.includes(tag); n++) tag = `$do${n}$`
  return `DO ${tag}${body}${tag}`
}

/** In one transaction: a session of the role never sees it without what it had and will have again. */
export function exactGrants(schema: string, functions: readonly string[], role: string): string[] {
  return [
    'BEGIN',
    refuseOwner(schema, role),
    `REVOKE ALL ON ALL TABLES IN SCHEMA ${schema} FROM ${role}`,
    `REVOKE ALL ON ALL SEQUENCES IN SCHEMA ${schema} FROM ${role}`,
    `REVOKE ALL ON ALL ROUTINES IN SCHEMA ${schema} FROM ${role}`,
    `REVOKE ALL ON SCHEMA ${schema} FROM ${role}`,
    grantUsage(schema, role),
    grantExecute(schema, functions, role),
    'COMMIT',
  ]
}

export function grantUsage(schema: string, role: string): string {
  return `GRANT USAGE ON SCHEMA ${schema} TO ${role}`
}

/** `roles` are quoted, with commas between. */
export function revokeCreate(schema: string, roles: string): string {
  return `REVOKE CREATE ON SCHEMA ${schema} FROM ${roles}`
}

export function grantExecute(schema: string, functions: readonly string[], role: string): string {
  const list = functions.map((name) => `${schema}.${name}`).join(', ')
  return `GRANT EXECUTE ON FUNCTION ${list} TO ${role}`
}
