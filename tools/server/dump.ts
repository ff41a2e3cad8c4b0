import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { clientProgram } from './postgres15.ts'

const run = promisify(execFile)

/** Dumps a database with pg_dump. `snapshot` is one that a session has exported, for a dump of that moment. */
export async function dumpDatabase(url: string, file: string, options: { snapshot?: string } = {}): Promise<void> {
  const { snapshot } = options
  await run(clientProgram('pg_dump'), [
    '--format=custom',
    '--compress=0',
    `--file=${file}`,
    `--dbname=${url}`,
    ...(snapshot === undefined ? [] : [`--snapshot=${snapshot}`]),
  ])
}

/** Restores a dump into a database that is empty. The first error ends it. */
export async function restoreDatabase(file: string, url: string): Promise<void> {
  await run(clientProgram('pg_restore'), ['--exit-on-error', '--single-transaction', `--dbname=${url}`, file])
}
