/** Grants. Names of schemas and roles arrive here already quoted; those of functions are ours. */

/** In one transaction: a session of the role never sees it without what it had and will have again. */
export function exactGrants(schema: string, functions: readonly string[], role: string): string[] {
  return [
    'BEGIN',
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

export function grantExecute(schema: string, functions: readonly string[], role: string): string {
  const list = functions.map((name) => `${schema}.${name}`).join(', ')
  return `GRANT EXECUTE ON FUNCTION ${list} TO ${role}`
}
