import { existsSync } from 'node:fs'
import { join } from 'node:path'

/**
 * PostgreSQL 15 with the programs that make dumps. The npm packages bring servers alone; the programs are Debian's, and
 * they are of one version: so the servers that they speak to are of that one as well, whatever the others of a run are.
 */
export const SERVER_15 = 'pg15-linux-x64'
export const CLIENT_15 = 'postgresql-client-15'

export type ClientProgram = 'pg_dump' | 'pg_restore'

/** Where Debian puts it. In the PATH there is only a wrapper, which takes the newest version. */
export function clientProgram(name: ClientProgram): string {
  return join('/usr/lib/postgresql/15/bin', name)
}

/** What is missing of it; undefined where everything is there. */
export function missingOf15(): string | undefined {
  const server = join(import.meta.dirname, '..', 'matrix', 'node_modules', SERVER_15, 'package.json')
  const missing = [
    ...(existsSync(server) ? [] : [SERVER_15]),
    ...(existsSync(clientProgram('pg_dump')) ? [] : [CLIENT_15]),
  ]
  return missing.length === 0 ? undefined : missing.join(' and ')
}
