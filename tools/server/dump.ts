import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { clientProgram } from './postgres15.ts'

const run = promisify(execFile)

/**
 * Dumps a database with pg_dump. `snapshot` is one that a session has exported, for a dump of that moment. `withoutData` is a pattern of
 * tables whose rows are left out.
 */
export async function dumpDatabase(
  url: string,
  file: string,
  options: { snapshot?: string; withoutData?: string } = {},
): Promise<void> {
  const { snapshot, withoutData } = options
  await run(clientProgram('pg_dump'), [
    '--format=custom',
    '--compress=0',
    `--file=${file}`,
    `--dbname=${url}`,
    ...(snapshot === undefined ? [] : [`--snapshot=${snapshot}`]),
    ...(withoutData === undefined ? [] : [`--exclude-table-data=${withoutData}`]),
  ])
}

/** Restores a dump into a database that is empty. The first error ends it. */
export async function restoreDatabase(file: string, url: string): Promise<void> {
  await run(clientProgram('pg_restore'), ['--exit-on-error', '--single-transaction', `--dbname=${url}`, file])
}
